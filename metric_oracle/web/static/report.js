"use strict";
// The index of a report: filters, order, columns. Its cases: marks and evidence, which are unpacked when one is opened.
const table = document.querySelector("table.reports");
const rows = [...table.tBodies[0].rows];
const first = 2; // the first cell of a score
const heads = [...table.tHead.rows[1].cells];
const form = document.getElementById("filters");
const caseOf = (row) => document.getElementById(`report-${row.dataset.q}`);
const number = (row, column) => Number.parseFloat(row.cells[first + column].textContent);
const lower = (text) => text.toLowerCase().replaceAll("ς", "σ");
const words = new Map(rows.map((row) => {
  const texts = caseOf(row)?.querySelectorAll(".text") ?? [];
  return [row, lower([...texts].map((text) => text.textContent).join("\n"))];
}));

// Rows, and cases with them. "none" stays last.
function order(sorted) {
  for (const head of heads) head.removeAttribute("aria-sort");
  table.tBodies[0].append(...sorted);
  document.getElementById("cases")?.append(...sorted.map(caseOf));
}

heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const turn = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
    order([...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [number(a, column), number(b, column)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return turn * (x - y);
    }));
    head.setAttribute("aria-sort", turn < 0 ? "descending" : "ascending");
  });
});
for (const button of form.querySelectorAll("[data-order]")) {
  const by = { disagreement: rows, files: [...rows].sort((a, b) => a.dataset.q - b.dataset.q) };
  button.addEventListener("click", () => order(by[button.dataset.order]));
}

function filter() {
  const asked = Object.fromEntries(new FormData(form));
  const notes = { fallback: "fallback", inexact: "not proven", rated: "rated" };
  const limit = (text, otherwise) => (text === "" ? otherwise : Number(text));
  let shown = 0;
  for (const row of rows) {
    const score = asked.column === "" ? 0 : number(row, Number(asked.column));
    const is_shown =
      (asked.column === "" || (score >= limit(asked.low, -Infinity) && score <= limit(asked.high, Infinity))) &&
      Number(row.dataset.ties) > limit(asked.ties, -1) &&
      (!asked.label || row.dataset.labels.split(" ").includes(asked.label)) &&
      Object.keys(notes).every((name) => !asked[name] || row.dataset.notes.split("|").includes(notes[name])) &&
      (!asked.text || words.get(row).includes(lower(asked.text.trim())));
    row.hidden = !is_shown;
    if (caseOf(row)) caseOf(row).hidden = !is_shown;
    shown += is_shown;
  }
  document.getElementById("shown").textContent = `${shown} of ${rows.length} test reports.`;
}
form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
filter();

// The columns of one choice; a system without a column among them has no heading.
const choice = document.getElementById("columns");
function columns() {
  const shown = new Set(choice.value.split(" ").map(Number));
  for (const row of [table.tHead.rows[1], ...rows]) {
    const skipped = row.parentElement === table.tHead ? 0 : first;
    for (let i = skipped; i < row.cells.length; i++) row.cells[i].hidden = !shown.has(i - skipped);
  }
  let at = 0;
  for (const group of groups) {
    const n = heads.slice(at, at + group.of).filter((head) => !head.hidden).length;
    at += group.of;
    group.cell.hidden = n === 0;
    group.cell.colSpan = n || 1;
  }
}
const groups = [...table.tHead.rows[0].cells].slice(first).map((cell) => ({ cell, of: cell.colSpan }));
choice?.addEventListener("change", columns);
if (choice) columns();

// Each case has its texts and scores. When it is opened, the same with marks takes their place.
let unpacked;
function marked() {
  const packed = Uint8Array.from(atob(document.getElementById("marked").textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
for (const folded of document.querySelectorAll("details.folded")) {
  folded.addEventListener("toggle", async () => {
    if (!folded.open || folded.dataset.marked) return;
    folded.dataset.marked = "1";
    unpacked ??= marked();
    folded.querySelector(".body").innerHTML = (await unpacked)[folded.id.replace("report-", "")];
  });
}
function openLinked(address) {
  const folded = address.startsWith("#report-") && document.getElementById(address.slice(1));
  if (folded) folded.open = true;
}
openLinked(location.hash);
document.addEventListener("click", (event) => openLinked(event.target.closest("a")?.getAttribute("href") ?? ""));
const unfold = document.getElementById("unfold");
if (unfold) unfold.hidden = false;
for (const button of unfold?.querySelectorAll("button") ?? []) {
  button.addEventListener("click", () => {
    for (const folded of document.querySelectorAll("details.folded:not([hidden])")) folded.open = Boolean(button.dataset.open);
  });
}
