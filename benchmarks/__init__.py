"""What penjing reaches, measured beside what else there is. Run by `make bench`."""
