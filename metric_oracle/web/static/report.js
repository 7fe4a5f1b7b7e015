"use strict";
// Sorts the table of a report by a column: numbers by size, the best known first; "none" stays last.
for (const head of document.querySelectorAll("th[data-column]")) {
  head.querySelector("button").addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const column = Number(head.dataset.column);
    const turn = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
    const value = (row) => Number.parseFloat(row.cells[column].textContent);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return turn * (x - y);
    });
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", turn < 0 ? "descending" : "ascending");
    body.append(...rows);
  });
}
