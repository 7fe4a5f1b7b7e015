// A study of a survey. The browser keeps every change at once (numbers, never text), until the server has saved it.
const form = document.querySelector("form[data-study]");
if (form) start(form);
const overview = document.querySelector("ol.studies[data-survey]");
if (overview) markUnsaved(overview);

function keyOf(...parts) {
  return ["survey", ...parts].join(":");
}

function start(form) {
  const LONGEST = 20000; // ms between two tries
  const PATIENCE = 10000; // ms that the server has for an answer
  const RULE = "a whole number from 0 to 99";
  const survey = form.elements.survey.value, rater = form.elements.rater.value, study = Number(form.dataset.study);
  const status = document.querySelector(".saved");

  // Cells
  const isEmpty = (cell) => !cell.value.trim();
  const isRight = (cell) => /^\s*0*[0-9]{1,2}\s*$/.test(cell.value);
  const isWrong = (cell) => !isEmpty(cell) && !isRight(cell);
  const value = (cell) => (isRight(cell) ? Number(cell.value) : null);
  const counts = (c) => c.cells.reduce((rows, cell, at) => {
    at % 2 ? rows.at(-1).push(value(cell)) : rows.push([value(cell)]);
    return rows;
  }, []);
  // What the browser keeps of a cell: its count, or a number that is refused, but never words.
  const typed = (cell) => (isRight(cell) ? String(value(cell)) : /^[\d.,+-]{0,9}$/.test(cell.value) ? cell.value : "");
  const asTyped = (given) => given.flat().map((count) => (count === null ? "" : String(count)));
  const fill = (c, texts) => c.cells.forEach((cell, at) => {
    cell.value = texts[at];
    mark(cell);
  });
  // Say beside a cell why its count is not taken.
  function mark(cell) {
    const id = `why-${cell.name}`;
    document.getElementById(id)?.remove();
    cell.removeAttribute("aria-invalid");
    cell.removeAttribute("aria-describedby");
    if (!isWrong(cell)) return;
    const why = document.createElement("span");
    why.id = id;
    why.className = "why";
    why.textContent = `Not saved: enter ${RULE}.`;
    cell.after(why);
    cell.setAttribute("aria-invalid", "true");
    cell.setAttribute("aria-describedby", id);
  }

  const candidates = [...form.querySelectorAll("fieldset")].map((fieldset) => {
    const index = Number(fieldset.dataset.candidate);
    const base = fieldset.querySelector("input[type=hidden]");
    const c = {
      fieldset, index, base, cells: [...fieldset.querySelectorAll("td input")], box: fieldset.querySelector(".conflict"),
      key: keyOf(survey, rater, study, index),
      seq: Number(base.value), // of the save that these cells were changed from
      sent: null, isSending: false, // the save that has no answer yet
      other: null, // the save of another tab, while the rater chooses
      trouble: "", refusal: "", // why a save is tried again, why it is not
      later: 0, again: 0, pause: 1000,
    };
    c.loaded = { seq: c.seq, counts: counts(c) };
    c.saved = JSON.stringify(c.loaded.counts);
    return c;
  });
  const isChanged = (c) => JSON.stringify(counts(c)) !== c.saved;
  const isBusy = () => candidates.some((c) => c.sent || c.other || isChanged(c));

  // Status line: the worst that is true of any candidate.
  let last = status.textContent;
  function say(text, isBad = false) {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", isBad);
  }
  function tell() {
    const one = (name) => candidates.find((c) => c[name])?.[name];
    const wrong = candidates.flatMap((c) => c.cells).filter(isWrong).length;
    if (one("refusal")) say(`Not saved. ${one("refusal")}`, true);
    else if (one("other")) say("Not saved: choose between two versions", true);
    else if (one("trouble")) say(one("trouble"), true);
    else if (wrong) say(`Not saved: ${wrong} ${wrong > 1 ? "cells need" : "cell needs"} ${RULE}`, true);
    else if (candidates.some((c) => c.isSending)) say("Saving");
    else if (isBusy()) say("Not saved yet");
    else say(last);
  }

  // What the browser keeps of a candidate: the save without an answer, and the cells as they are now.
  function keep(c) {
    try {
      if (c.sent || c.other || isChanged(c) || c.cells.some(isWrong)) {
        c.written = JSON.stringify({ sent: c.sent, seq: c.seq, cells: c.cells.map(typed) });
        localStorage.setItem(c.key, c.written);
      } else if (localStorage.getItem(c.key) === c.written) localStorage.removeItem(c.key); // else it is another tab's
    } catch { /* a browser that keeps nothing: the page still does */ }
  }
  function restore(c) {
    let left;
    try {
      c.written = localStorage.getItem(c.key);
      left = JSON.parse(c.written);
      if (left?.counts) left = { sent: left, seq: left.base, cells: asTyped(left.counts) }; // of an earlier version
    } catch { /* none, or unreadable */ }
    if (left?.cells?.length !== c.cells.length) return;
    const isOld = left.seq < c.loaded.seq && !left.sent;
    c.sent = left.sent;
    c.seq = left.seq;
    fill(c, left.cells);
    if (isOld && !isChanged(c)) c.seq = c.loaded.seq; // the server has these very counts
    else if (isOld || c.sent) c.saved = ""; // the server says whether another save came between
    keep(c);
    save(c);
  }

  function changed(c) {
    keep(c);
    if (c.other) offer(c);
    clearTimeout(c.later);
    c.later = setTimeout(() => save(c), 300);
    tell();
  }

  // One save of a candidate is on its way at a time; it is sent again, the same one, until the server answers.
  function save(c) {
    clearTimeout(c.later);
    clearTimeout(c.again);
    if (c.isSending || c.other || c.refusal) return;
    if (!c.sent) {
      if (!isChanged(c)) return;
      c.sent = { id: crypto.randomUUID(), study, candidate: c.index, counts: counts(c), base: c.seq, survey, rater };
      keep(c);
    }
    send(c);
  }

  async function send(c) {
    c.isSending = true;
    tell();
    let code = 0, answer = {};
    try {
      const headers = { "content-type": "application/json" }, signal = AbortSignal.timeout(PATIENCE);
      const body = JSON.stringify(c.sent);
      const got = await fetch("/save", { method: "POST", headers, body, keepalive: true, signal });
      code = got.status;
      if (got.headers.get("content-type")?.startsWith("application/json")) answer = await got.json();
      else if (code === 200) code = 0;
    } catch { code = 0; /* no answer: sent again below */ }
    c.isSending = false;
    if (code === 200) acknowledged(c, answer);
    else if (code === 409) conflict(c, answer);
    else if (code === 400) c.refusal = answer.line ?? "Reload the page.";
    else {
      const why = code === 403 ? ": open your address again" : answer.line ? `: ${answer.line}` : "";
      c.trouble = `Not saved, retrying${why}`;
      c.again = setTimeout(() => save(c), c.pause);
      c.pause = Math.min(2 * c.pause, LONGEST);
    }
    tell();
  }

  // Cells are changes of this save from now on.
  function follow(c, event) {
    c.seq = event.seq;
    c.base.value = String(event.seq);
    c.saved = JSON.stringify(event.counts);
  }

  function acknowledged(c, answer) {
    c.sent = null;
    c.trouble = "";
    c.pause = 1000;
    follow(c, answer);
    last = `Saved ${new Date().toTimeString().slice(0, 8)}`;
    if (!isChanged(c) && answer.seq < c.loaded.seq) { // a save of an earlier visit, which others have followed
      follow(c, c.loaded);
      fill(c, asTyped(c.loaded.counts));
    }
    keep(c);
    save(c);
  }

  function conflict(c, answer) {
    c.sent = null;
    c.trouble = "";
    if (JSON.stringify(answer.counts) === JSON.stringify(counts(c))) follow(c, answer);
    else c.other = answer;
    keep(c);
    if (c.other) offer(c);
  }

  // Let the rater choose between the cells as they are when the choice is made, and the save of another tab.
  function offer(c) {
    const text = (given) => given.map((row) => row.map((count) => count ?? "–").join(" / ")).join(", ");
    if (!c.box.children.length) {
      const words = document.createElement("p");
      words.textContent = "Another tab or window has saved this candidate since. Keep which counts?";
      const choices = [() => {}, () => fill(c, asTyped(c.other.counts))].map((choose) => {
        const button = document.createElement("button");
        button.type = "button";
        button.addEventListener("click", () => {
          choose();
          follow(c, c.other);
          c.other = null;
          c.box.replaceChildren();
          c.cells[0].focus();
          keep(c);
          save(c);
          if (!isBusy()) last = "Saved";
          tell();
        });
        return button;
      });
      c.box.replaceChildren(words, ...choices);
    }
    const [mine, others] = c.box.querySelectorAll("button");
    mine.textContent = `Those of this page: ${text(counts(c))}`;
    others.textContent = `Those of the other: ${text(c.other.counts)}`;
  }

  function onward() {
    const cells = candidates.flatMap((c) => c.cells);
    const open = cells.find(isWrong) ?? cells.find((cell) => !isRight(cell));
    if (open) {
      if (isWrong(open)) tell();
      else say(`${cells.filter(isEmpty).length} cells are open`, true);
      open.focus();
      open.select();
      return;
    }
    candidates.forEach(save);
    const began = Date.now();
    const wait = () => {
      if (!isBusy()) location.assign(form.dataset.onward);
      else if (Date.now() - began < 5000 && !candidates.some((c) => c.other || c.refusal)) setTimeout(wait, 30);
    };
    wait();
  }

  function zeros(c) {
    for (const cell of c.cells) if (isEmpty(cell)) cell.value = "0";
    changed(c);
    save(c);
  }

  form.noValidate = true; // the page says itself what is wrong, and where
  for (const c of candidates) {
    restore(c);
    const button = c.fieldset.querySelector(".zeros");
    button.hidden = false;
    button.addEventListener("click", () => zeros(c));
    c.fieldset.addEventListener("input", (event) => {
      mark(event.target);
      changed(c);
    });
    c.fieldset.addEventListener("focusout", () => save(c));
    c.fieldset.addEventListener("keydown", (event) => {
      const at = c.cells.indexOf(event.target);
      if (at < 0 || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      if (event.key === "z" || event.key === "Z") zeros(c);
      else if (event.key === "Enter") {
        const all = candidates.flatMap((one) => one.cells);
        const next = all[all.indexOf(event.target) + 1];
        (next ?? form.querySelector("button.onward")).focus();
      } else return;
      event.preventDefault();
    });
  }
  tell();
  document.querySelectorAll(".script").forEach((one) => { one.hidden = false; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onward();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onward();
  });
  addEventListener("pagehide", () => candidates.forEach(save));
  addEventListener("online", () => candidates.forEach(save));
  // Pages that come back from the cache of "back" may be older than what another tab has saved.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

// Mark the studies with counts that only this browser has: their pages save them.
function markUnsaved(overview) {
  const { survey, rater } = overview.dataset;
  let waiting = 0;
  for (const item of overview.querySelectorAll("li")) {
    try {
      const before = keyOf(survey, rater, item.dataset.study, "");
      if (!Object.keys(localStorage).some((key) => key.startsWith(before))) continue;
    } catch { return; }
    waiting += 1;
    const note = document.createElement("span");
    note.className = "open";
    note.textContent = " not saved yet";
    item.append(note);
  }
  if (!waiting) return;
  const words = document.querySelector(".unsaved");
  words.textContent = "Counts that you entered wait in this browser. Open the studies marked “not saved yet” to save them.";
}
