"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  for (const part of all(".controls, .chooser, .copy, #theme")) part.hidden = false;

  // Colours follow the reader's setting until the button is pressed.
  const theme = one("#theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { one("#theme-now").textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();

  // Sorting: best first, worst first, then the order of the study. Cells without a value stay last.
  const text = (row) => row.dataset.label;
  const sortBy = (head) => {
    const table = head.closest("table");
    const body = one("tbody.ranked", table);
    const column = [...head.parentNode.children].indexOf(head);
    const bestFirst = head.dataset.better === "up" ? "descending" : "ascending";
    const states = [bestFirst, bestFirst === "ascending" ? "descending" : "ascending", "none"];
    const state = states[(states.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
    for (const other of all("thead th", table)) other.setAttribute("aria-sort", other === head ? state : "none");
    const sign = state === "descending" ? -1 : 1;
    const value = (row) => row.children[column].dataset.v;
    const compare = (a, b) => {
      if (state === "none") return a.dataset.place - b.dataset.place;
      if (column === 0) return sign * text(a).localeCompare(text(b));
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (Number(x) - Number(y)) || a.dataset.place - b.dataset.place;
    };
    if (body) body.append(...all("tr", body).sort(compare));
  };
  for (const table of all("table.sortable")) {
    all("tbody.ranked tr", table).forEach((row, place) => { row.dataset.place = place; });
    for (const head of all("thead th", table)) one("button", head).addEventListener("click", () => sortBy(head));
  }
  for (const box of all(".scroll")) box.addEventListener("scroll", () => box.classList.toggle("moved", box.scrollLeft > 0), { passive: true });

  // Controls of the headline table, or of all tables of the board, whose sections can be filtered, too.
  const tables = all('table[id^="headline"]');
  if (tables.length) {
    const find = one("#find");
    const choices = all("select.choice");
    const filter = () => {
      const wanted = find.value.trim().toLowerCase();
      for (const section of all("section[data-benchmark]")) {
        section.hidden = choices.some((choice) => choice.value && choice.value !== section.dataset[choice.dataset.key]);
        one(`nav a[href="#${section.id}"]`).parentNode.hidden = section.hidden;
      }
      const rows = tables.flatMap((table) => all("tbody.ranked tr", table));
      for (const row of rows) row.hidden = !text(row).toLowerCase().includes(wanted);
      const first = all("tbody.ranked tr", tables[0]);
      one("#found").textContent = wanted ? `${first.filter((row) => !row.hidden).length} of ${first.length} shown` : "";
    };
    for (const input of [find, ...choices]) input.addEventListener("input", filter);
    const toggle = (id, name, inverted) => {
      const box = one(id);
      if (!box) return;
      const apply = () => { for (const table of tables) table.classList.toggle(name, box.checked !== inverted); };
      box.addEventListener("change", apply);
      apply();
    };
    toggle("#intervals", "bare", true);
    toggle("#every", "every", false);
    filter();
  }

  const numbers = one("#numbers");
  if (numbers) {
    const number = () => document.body.classList.toggle("numbers", numbers.checked);
    numbers.addEventListener("change", number);
    number(); // browsers restore form fields on reload
  }

  // Heat map page: choose methods and a threshold; words below it lose their colour, as with a hard mask.
  const threshold = one("#threshold");
  if (threshold) {
    const boxes = all(".chips input");
    const choose = () => {
      for (const box of boxes) for (const line of all(`.line[data-method="${box.value}"]`)) line.hidden = !box.checked;
      for (const word of all(".w")) word.classList.toggle("under", Number(word.dataset.v) < Number(threshold.value));
      threshold.parentNode.querySelector("output").value = threshold.value;
    };
    for (const input of [threshold, ...boxes]) input.addEventListener("input", choose);
    choose();
  }

  // Show one row of a set at a time.
  for (const kind of all(".kind")) {
    const select = one("select", kind);
    const articles = all("article", kind);
    const choose = () => {
      articles.forEach((article, place) => { article.hidden = place !== select.selectedIndex; });
      one(".count", kind).textContent = `${select.selectedIndex + 1} of ${articles.length}`;
    };
    const step = (by) => {
      select.selectedIndex = (select.selectedIndex + by + articles.length) % articles.length;
      choose();
    };
    one(".previous", kind).addEventListener("click", () => step(-1));
    one(".next", kind).addEventListener("click", () => step(1));
    select.addEventListener("change", () => step(0));
    choose();
  }

  // One tab stop per line of words; arrow keys, Home and End move between them.
  document.addEventListener("keydown", (event) => {
    const word = event.target.closest?.(".w");
    if (!word || event.ctrlKey || event.metaKey || event.altKey) return;
    const answer = word.closest(".answer");
    const line = all(".w", answer);
    const back = getComputedStyle(answer).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    const forward = back === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const place = { [back]: line.indexOf(word) - 1, [forward]: line.indexOf(word) + 1, Home: 0, End: line.length - 1 }[event.key];
    if (place === undefined) return;
    event.preventDefault();
    if (line[place]) line[place].focus();
  });
  document.addEventListener("focusin", (event) => {
    const word = event.target.closest?.(".w");
    if (!word) return;
    for (const other of all('.w[tabindex="0"]', word.closest(".answer"))) other.tabIndex = -1;
    word.tabIndex = 0;
  });

  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const code = one("code", button.parentNode);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // Mark the current section in the navigation.
  const links = new Map(all("nav li a").map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    const entry = entries.filter((found) => found.isIntersecting).at(-1);
    if (!entry) return;
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = links.get(entry.target.id);
    link?.setAttribute("aria-current", "true");
    const strip = link?.closest("ol");
    if (strip && strip.scrollWidth > strip.clientWidth) strip.scrollTo({ left: link.offsetLeft - strip.clientWidth / 3 });
  }, { rootMargin: "-25% 0px -70% 0px" });
  for (const section of all("main > section")) watch.observe(section);

  // Open all details for printing.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const box of closed) box.open = true;
  });
  addEventListener("afterprint", () => { for (const box of closed) box.open = false; });
})();
