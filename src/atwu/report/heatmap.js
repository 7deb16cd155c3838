"use strict";
(() => {
  const controls = document.querySelector(".controls");
  const words = [...document.querySelectorAll(".w")];
  const slider = document.getElementById("threshold");
  const output = controls.querySelector("output");
  controls.hidden = false;

  // Words below the threshold lose their colour, as under a hard mask.
  const applyThreshold = () => {
    const from = Number(slider.value);
    for (const word of words) word.classList.toggle("under", Number(word.dataset.v) < from);
    output.value = String(from);
  };
  const applyMethods = () => {
    for (const box of controls.querySelectorAll(".chips input"))
      for (const line of document.querySelectorAll(".line." + box.value)) line.hidden = !box.checked;
  };
  slider.addEventListener("input", applyThreshold);
  controls.querySelector(".chips").addEventListener("change", applyMethods);
  controls.addEventListener("submit", (event) => event.preventDefault());
  const numbers = document.getElementById("numbers");
  const applyNumbers = () => document.body.classList.toggle("numbers", numbers.checked);
  numbers.addEventListener("change", applyNumbers);

  // One tab stop per line; arrow keys, Home and End move between its words.
  document.addEventListener("keydown", (event) => {
    const word = event.target.closest?.(".w");
    if (!word || event.ctrlKey || event.metaKey || event.altKey) return;
    const line = [...word.closest(".answer").querySelectorAll(".w")];
    const back = getComputedStyle(word.closest(".answer")).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    const forward = back === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const place = { [back]: line.indexOf(word) - 1, [forward]: line.indexOf(word) + 1, Home: 0, End: line.length - 1 }[event.key];
    if (place === undefined) return;
    event.preventDefault();
    if (line[place]) line[place].focus();
  });
  document.addEventListener("focusin", (event) => {
    const word = event.target.closest?.(".w");
    if (!word) return;
    for (const other of word.closest(".answer").querySelectorAll('.w[tabindex="0"]')) other.tabIndex = -1;
    word.tabIndex = 0;
  });
  // Browsers restore form fields on reload.
  applyThreshold();
  applyMethods();
  applyNumbers();
})();
