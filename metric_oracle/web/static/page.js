// The script of all pages: keys, and the partner of a word. Everything else is links and forms, which work without it.
const off = "oracle-keys-off";
const help = document.getElementById("keys");

function single(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem(off)) return false;
  return !event.target.closest("input, textarea, select, [contenteditable]");
}

// data-key="j" on a link or button: that key does what a click does. On a field, it moves there.
document.addEventListener("keydown", (event) => {
  if (event.key === "?" && help && !event.target.closest("input, textarea, select")) {
    help.open ? help.close() : help.showModal();
    event.preventDefault();
  } else if (single(event) && !help?.open) {
    const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (target) {
      event.preventDefault();
      target.matches("input") ? target.focus() : target.click();
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
if (document.querySelector("h1[data-focus]") && !location.hash) document.querySelector("h1[data-focus]").focus();

// The test report has the marks of the candidate under the pointer or with the focus, else of the one that is picked.
const cards = document.querySelectorAll("[data-card]");
function show(card) {
  for (const view of document.querySelectorAll("[data-of]")) view.hidden = view.dataset.of !== card.dataset.card;
}
for (const card of cards) {
  for (const event of ["pointerenter", "focusin"]) card.addEventListener(event, () => show(card));
  for (const event of ["pointerleave", "focusout"]) {
    card.addEventListener(event, () => show(document.querySelector(".card.picked")));
  }
}

// The partner of a phrase: by pointer, or by arrow keys within a text, which is one stop of the Tab key.
function both(word) {
  const number = word.closest("[data-of]")?.dataset.of ?? word.closest("[data-card]")?.dataset.card;
  const places = number ? `:is([data-of="${number}"], [data-card="${number}"])` : "";
  return number ? document.querySelectorAll(`${places} [data-p="${word.dataset.p}"]`)
    : word.closest(".evidence").querySelectorAll(`[data-p="${word.dataset.p}"]`);
}

function mark(word) {
  for (const old of document.querySelectorAll(".partner")) old.classList.remove("partner");
  for (const other of word ? both(word) : []) other.classList.add("partner");
}

for (const text of document.querySelectorAll(".evidence .text, .case .text")) {
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
