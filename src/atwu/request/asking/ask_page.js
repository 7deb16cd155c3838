"use strict";
(() => {
  const boxes = [...document.querySelectorAll("input[data-record]")];
  const save = document.querySelector("#save");
  if (!save) return;
  const count = () => {
    const marked = boxes.filter((box) => box.checked).length;
    document.querySelector("#count").textContent = `${marked} of ${boxes.length} rows marked`;
    save.disabled = marked === 0;
  };
  const mark = (value) => { for (const box of boxes) box.checked = value; count(); };
  for (const box of boxes) box.addEventListener("change", count);
  document.querySelector("#all").addEventListener("click", () => mark(true));
  document.querySelector("#none").addEventListener("click", () => mark(false));
  save.addEventListener("click", () => {
    const lines = boxes.filter((box) => box.checked).map((box) => `${box.dataset.record}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
    link.download = save.dataset.name;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  count();
})();
