// The script of all pages: keys, and the partner of a word. Everything else is links and forms, which work without it.
const off = "oracle-keys-off";
const help = document.getElementById("keys");

function single(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem(off)) return false;
  return !event.target.closest("input, textarea, select, [contenteditable]");
}

// data-key="j" on a link or button: that key does what a click does.
document.addEventListener("keydown", (event) => {
  if (event.key === "?" && help && !event.target.closest("input, textarea, select")) {
    help.open ? help.close() : help.showModal();
    event.preventDefault();
  } else if (single(event) && !help?.open) {
    const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (target) {
      event.preventDefault();
      target.click();
    }
  }
});

const box = document.getElementById("keys-off");
if (box) {
  box.checked = Boolean(localStorage.getItem(off));
  box.addEventListener("change", () => (box.checked ? localStorage.setItem(off, "1") : localStorage.removeItem(off)));
  document.getElementById("keys-open").addEventListener("click", () => help.showModal());
  document.getElementById("keys-close").addEventListener("click", () => help.close());
}

// After a step to another report the reader starts at its heading.
if (document.querySelector("h1[data-focus]")) document.querySelector("h1[data-focus]").focus();

// The partner of a word: by pointer, or by arrow keys within a text, which is one stop of the Tab key.
function mark(word) {
  for (const old of document.querySelectorAll(".partner")) old.classList.remove("partner");
  if (!word) return;
  const pair = word.closest(".evidence");
  for (const other of pair.querySelectorAll(`[data-p="${word.dataset.p}"]`)) other.classList.add("partner");
}

for (const text of document.querySelectorAll(".evidence .text")) {
  const words = [...text.querySelectorAll("[data-p]")];
  if (!words.length) continue;
  let at = -1;
  text.tabIndex = 0;
  text.addEventListener("pointerover", (event) => mark(event.target.closest("[data-p]")));
  text.addEventListener("pointerleave", () => mark(null));
  text.addEventListener("focus", () => mark(words[Math.max(at, 0)]));
  text.addEventListener("blur", () => mark(null));
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.min(Math.max(Math.max(at, 0) + step, 0), words.length - 1);
    mark(words[at]);
  });
}
