"use strict";

// Titles need a mouse; this tells them to touch and keyboard as well, in the figure's caption.
for (const element of document.querySelectorAll("[data-tip]")) {
  const tell = () => {
    element.closest("figure").querySelector(".told").textContent =
      element.getAttribute("aria-label") ?? element.title;
  };
  for (const event of ["pointerenter", "focus", "click"]) element.addEventListener(event, tell);
}

// What is folded away belongs on paper too.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy by hand";
      }
    });
  }
}
