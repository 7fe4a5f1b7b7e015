// A study of a survey: every change is saved, and kept by the browser (numbers, never text) until the server has it.
const form = document.querySelector("form[data-study]");
if (form) start(form);

function start(form) {
  const LONGEST = 20000; // ms between two tries
  const survey = form.elements.survey.value, rater = form.elements.rater.value, study = Number(form.dataset.study);
  const status = document.querySelector(".saved");
  const candidates = [...form.querySelectorAll("fieldset")].map((fieldset, index) => {
    const cells = [...fieldset.querySelectorAll("td input")];
    const base = fieldset.querySelector("input[type=hidden]");
    const key = ["survey", survey, rater, study, index].join(":");
    // What the server has, what is on its way, and whether the cells have changed since.
    return { fieldset, index, cells, base, key, seq: Number(base.value), sent: null, saved: "", timer: 0, pause: 1000 };
  });
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const isRight = (cell) => /^\s*([0-9]|[1-9][0-9])\s*$/.test(cell.value);
  const value = (cell) => (isRight(cell) ? Number(cell.value) : null);
  const counts = (c) => c.cells.reduce((rows, cell, at) => {
    at % 2 ? rows.at(-1).push(value(cell)) : rows.push([value(cell)]);
    return rows;
  }, []);
  const fill = (c, given) => c.cells.forEach((cell, at) => {
    const count = given[at >> 1][at % 2];
    cell.value = count === null ? "" : String(count);
    mark(cell);
  });
  const mark = (cell) => {
    if (cell.value.trim() && !isRight(cell)) cell.setAttribute("aria-invalid", "true");
    else cell.removeAttribute("aria-invalid");
  };
  const isChanged = (c) => JSON.stringify(counts(c)) !== c.saved;
  const busy = () => candidates.some((c) => c.sent || isChanged(c));
  const say = (text, isBad) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", Boolean(isBad));
  };
  const keep = (c) => {
    try {
      if (c.sent) localStorage.setItem(c.key, JSON.stringify(c.sent));
      else localStorage.removeItem(c.key);
    } catch { /* a browser that keeps nothing: the page still does */ }
  };
  const kept = (c) => {
    try { return JSON.parse(localStorage.getItem(c.key)); } catch { return null; }
  };

  // One save of a candidate is on its way at a time; it is sent again, the same one, until the server answers.
  function save(c) {
    clearTimeout(c.timer);
    if (c.isStuck) return;
    if (!c.sent) {
      if (!isChanged(c)) return;
      c.sent = { id: crypto.randomUUID(), study, candidate: c.index, counts: counts(c), base: c.seq, survey, rater };
      keep(c);
    }
    if (c.isSending) return;
    send(c);
  }

  async function send(c) {
    c.isSending = true;
    say("Saving");
    let code = 0, answer = {};
    try {
      const headers = { "content-type": "application/json" };
      const got = await fetch("/save", { method: "POST", headers, body: JSON.stringify(c.sent), keepalive: true });
      code = got.status;
      if (got.headers.get("content-type")?.startsWith("application/json")) answer = await got.json();
      else if (code === 200) code = 0;
    } catch { /* no answer: sent again below */ }
    c.isSending = false;
    if (code === 200) return acknowledged(c, answer);
    if (code === 409) return conflict(c, answer);
    if (code === 400) {
      c.isStuck = true;
      return say(`Not saved. ${answer.line ?? ""}`, true);
    }
    const why = code === 403 ? ": open your address again" : answer.line ? `: ${answer.line}` : "";
    say(`Not saved, retrying${why}`, true);
    c.timer = setTimeout(() => save(c), c.pause);
    c.pause = Math.min(2 * c.pause, LONGEST);
  }

  function acknowledged(c, answer) {
    const { counts: mine } = c.sent;
    const isLate = answer.seq < c.seq; // a save of an earlier visit, which others have followed
    c.sent = null;
    keep(c);
    c.pause = 1000;
    if (!isLate) {
      c.seq = answer.seq;
      c.base.value = String(c.seq);
      c.saved = JSON.stringify(mine);
    }
    if (isChanged(c)) return save(c);
    if (!busy()) say(`Saved ${new Date().toTimeString().slice(0, 8)}`);
  }

  function conflict(c, answer) {
    const mine = c.sent.counts;
    c.sent = null;
    c.isStuck = true;
    c.seq = answer.seq;
    c.base.value = String(c.seq);
    say("Not saved: choose between two versions", true);
    const text = (given) => given.map((row) => row.map((count) => count ?? "–").join(" / ")).join(", ");
    const box = c.fieldset.querySelector(".conflict");
    const choose = (name, given) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${name}: ${text(given)}`;
      button.addEventListener("click", () => {
        box.replaceChildren();
        c.isStuck = false;
        c.saved = JSON.stringify(answer.counts);
        fill(c, given);
        c.cells[0].focus();
        save(c);
        keep(c);
        if (!busy()) say("Saved");
      });
      return button;
    };
    const words = document.createElement("p");
    words.textContent = "Another tab or window has saved this candidate since. Keep which counts?";
    box.replaceChildren(words, choose("Those of this page", mine), choose("Those of the other", answer.counts));
  }

  function onward() {
    const cells = candidates.flatMap((c) => c.cells);
    const open = cells.filter((cell) => !isRight(cell));
    if (open.length) {
      say(`${open.length} cells are open`, true);
      open[0].focus();
      open[0].select();
      return;
    }
    candidates.forEach(save);
    const began = Date.now();
    const wait = () => {
      if (!busy()) location.assign(form.dataset.onward);
      else if (Date.now() - began < 5000 && !candidates.some((c) => c.isStuck)) setTimeout(wait, 30);
    };
    wait();
  }

  function zeros(c) {
    for (const cell of c.cells) if (!cell.value.trim()) cell.value = "0";
    save(c);
  }

  for (const c of candidates) {
    c.saved = JSON.stringify(counts(c));
    const left = kept(c);
    if (left) {
      c.sent = left;
      if (left.base >= c.seq) fill(c, left.counts);
      save(c);
    }
    const button = c.fieldset.querySelector(".zeros");
    button.hidden = false;
    button.addEventListener("click", () => zeros(c));
    c.fieldset.addEventListener("input", (event) => {
      mark(event.target);
      clearTimeout(c.timer);
      if (!c.sent) {
        say("Not saved yet");
        c.timer = setTimeout(() => save(c), 300);
      }
    });
    c.fieldset.addEventListener("focusout", () => { if (!c.sent) save(c); });
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
