// What pages do better with a script; without it they say and do the same.
"use strict";
(() => {
  // Times are shown in UTC, followed by the time in the reader's zone if that differs.
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  function tellTimes(within) {
    for (const each of within.querySelectorAll("time[datetime]")) {
      const at = new Date(each.dateTime);
      if (isNaN(at) || each.dataset.shown) continue;
      each.dataset.shown = "yes";
      each.title = zone.format(at) + " here";
      if (at.getTimezoneOffset() !== 0) each.append(" (" + clock.format(at) + " here)");
    }
  }

  // Takes the same part of the page as it is now, and leaves alone what somebody is using.
  async function refresh(part) {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected) { if (answer.redirected) location.reload(); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
    if (fresh === null || isUsed(part)) return;
    tellTimes(fresh);
    const opened = new Set([...part.querySelectorAll("details[open][id]")].map((each) => each.id));
    const scrolled = [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
  }
  function isUsed(part) {
    const chosen = getSelection();
    const isChosen = chosen !== null && !chosen.isCollapsed && part.contains(chosen.anchorNode);
    const isOpen = part.querySelector("details[open]:not([id])") !== null;
    return isChosen || isOpen || (part.contains(document.activeElement) && document.activeElement !== document.body);
  }
  function keepFresh(part) {
    const every = Number(part.dataset.refresh) * 1000;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet pause";
    let isPaused = false;
    const say = () => { button.textContent = isPaused ? "Continue" : "Pause"; };
    button.title = "This page refreshes every " + part.dataset.refresh + " seconds";
    button.addEventListener("click", () => { isPaused = !isPaused; say(); });
    say();
    part.before(button);
    setInterval(() => { if (!isPaused && !document.hidden && !isUsed(part)) refresh(part).catch(() => {}); }, every);
  }

  // What is typed is checked a moment later. Each of text and form shows the change of the other one; a submit button does it all
  // without a script.
  function checkTyped(form) {
    const text = form.elements.namedItem("text");
    let waiting = 0, typed = 0;
    async function check() {
      const at = typed, fields = new URLSearchParams(new FormData(form));
      fields.set("do", "try");
      const answer = await fetch(form.action, { method: "POST", body: fields });
      if (answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = fresh.getElementById("checked");
      if (found === null || at !== typed) return;
      tellTimes(found);
      document.getElementById("checked").replaceChildren(...found.childNodes);
      const parts = document.getElementById("parts"), now = fresh.getElementById("parts");
      const wrong = new Map([...now.querySelectorAll("[name]")].map((each) => [each.name, each.getAttribute("aria-invalid")]));
      wrong.set("text", fresh.getElementById("text").getAttribute("aria-invalid"));
      if (document.activeElement === text) parts.replaceChildren(...now.childNodes);
      else if (text.value !== fresh.getElementById("text").value) text.value = fresh.getElementById("text").value;
      for (const each of form.querySelectorAll("input, select, textarea"))
        if (wrong.get(each.name)) each.setAttribute("aria-invalid", "true"); else each.removeAttribute("aria-invalid");
      document.getElementById("agreed").value = fresh.getElementById("agreed").value;
    }
    form.addEventListener("input", () => {
      typed++;
      clearTimeout(waiting);
      waiting = setTimeout(() => check().catch(() => {}), 200);
    });
  }

  // A file is read into the text that is sent; without a script it is pasted.
  function readInto(part) {
    part.hidden = false;
    part.querySelector("input").addEventListener("change", async (event) => {
      const file = event.target.files[0];
      if (file) document.getElementById(part.dataset.fileInto).value = await file.text();
    });
  }

  // Somebody's data: what does not print is shown by its number; a long text is cut, and opened where somebody wants it.
  const SHOWN = 120, OPENED = 20000;
  function printed(text, keep) {
    const made = document.createElement("bdi");
    for (const piece of text.split(/([\p{C}\p{Zl}\p{Zp}])/u)) {
      if (keep.includes(piece) || !/^[\p{C}\p{Zl}\p{Zp}]$/u.test(piece)) { made.append(piece); continue; }
      const sign = document.createElement("span");
      sign.className = "control";
      sign.textContent = "U+" + piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      made.append(sign);
    }
    return made;
  }
  function said(value) {
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? "–", cut = printed(text.slice(0, SHOWN), "");
    if (text.length <= SHOWN) { cut.className = "said"; return cut; }
    cut.append("…");
    const summary = element("summary", "", cut, " ", element("span", "muted", text.length.toLocaleString("en") + " characters"));
    const made = element("details", "said", summary);
    made.addEventListener("toggle", () => {
      if (made.childElementCount > 1) return;
      const whole = element("pre", "wrap", printed(text.slice(0, OPENED), "\n\t"));
      whole.tabIndex = 0;
      made.append(whole);
      const rest = text.length - OPENED;
      if (rest > 0) made.append(element("p", "muted", "… and " + rest.toLocaleString("en") + " characters more; use the API to read them"));
    });
    return made;
  }
  function element(name, kind, ...children) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  }

  // A number is shown as it was written, where the browser tells how; a large one would else be another.
  const exact = (_, value, context) =>
    typeof value === "number" && JSON.rawJSON && context?.source !== undefined ? JSON.rawJSON(context.source) : value;

  // Rows as the API sends them. While it is paused the newest wait, as many as are shown, and a step shows the next.
  function follow(part) {
    const most = Number(part.dataset.rows), body = part.querySelector("tbody"), template = part.querySelector("template");
    const log = element("div"), note = element("p", "muted"), buttons = element("p", "row middle");
    const pause = element("button", "quiet"), step = element("button", "quiet", "Step");
    let waiting = [], left = 0, isPaused = false;
    log.setAttribute("role", "log");
    log.setAttribute("aria-label", "Events as they come");
    pause.type = step.type = "button";
    const say = () => {
      pause.textContent = isPaused ? "Continue" : "Pause";
      step.disabled = !isPaused || waiting.length === 0;
      log.setAttribute("aria-live", isPaused ? "off" : "polite");
      if (isPaused) note.textContent = "Paused; " + waiting.length + " wait" + (left ? ", " + left + " were left out" : "") + ".";
    };
    function add(each) {
      const row = template.content.cloneNode(true), slot = (name) => row.querySelector("[data-slot=" + name + "]");
      const at = element("time", "", each.at.slice(0, 19).replace("T", " ") + " UTC");
      at.dateTime = each.at.slice(0, 19) + "Z";
      slot("at").replaceChildren(at);
      slot("collection").replaceChildren(each.collection === null ? "–" : said(each.collection));
      const sign = element("span", "", each.matches ? "● " : "○ ");
      sign.setAttribute("aria-hidden", "true");
      slot("outcome").replaceChildren(each.ignored ? element("span", "badge rest", "ignored")
        : element("span", each.matches ? "badge good" : "badge rest", sign, each.matches ? each.matches + " matched" : "none matched"));
      if (each.matched_by.length) slot("matched_by").replaceChildren(...each.matched_by.map((hit) =>
        element("div", "", said(hit.id), " ", element("small", "", "to ", hit.gateway === null ? "no gateway" : said(hit.gateway)))));
      slot("event").replaceChildren(element("code", "", said("event" in each.shown ? each.shown.event : each.shown.text)));
      slot("read").replaceChildren(said(each.source), " ", element("small", "", said(each.partition), " at ", said(each.position)));
      const why = slot("why");
      if (why !== null) {
        why.href = "/console/try?number=" + each.number;
        why.querySelector(".hidden").textContent = " Event " + each.number;
      }
      tellTimes(row);
      part.querySelector("[data-none]")?.remove();
      body.prepend(row);
      const isUsed = (each) => each.contains(document.activeElement) || each.querySelector("details[open]") !== null;
      const old = [...body.rows].slice(most).filter((each) => !isUsed(each));
      old.forEach((each) => each.remove());
    }
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      if (!isPaused) { waiting.forEach(add); waiting = []; left = 0; note.textContent = "Waiting for events."; }
      say();
    });
    step.addEventListener("click", () => {
      if (waiting.length) add(waiting.shift());
      const isLast = waiting.length === 0;
      say();
      if (isLast) pause.focus();
    });
    buttons.append(pause, step);
    const table = part.querySelector(".wide");
    table.before(buttons, note, log);
    log.append(table);
    note.textContent = "Waiting for events.";
    say();
    const source = new EventSource(part.dataset.stream);
    source.addEventListener("event", (message) => {
      const each = { ...JSON.parse(message.data), shown: JSON.parse(message.data, exact) };
      if (!isPaused) { add(each); return; }
      waiting.push(each);
      if (waiting.length > most) { waiting.shift(); left += 1; }
      say();
    });
    source.addEventListener("rates", (message) => {
      const rates = JSON.parse(message.data);
      if (isPaused) { left += rates.left_out; say(); return; }
      const all = rates.events_per_s === undefined ? "" : " " + rates.events_per_s.toLocaleString() + " are read a second.";
      note.textContent = "In the last second " + rates.shown + " were shown, " + rates.left_out + " left out." + all;
    });
    source.addEventListener("error", () => { if (!isPaused) note.textContent = "The stream was interrupted. It reconnects by itself; you can also reload the page."; });
    addEventListener("pagehide", () => source.close());
  }

  tellTimes(document);
  document.querySelectorAll("form[data-check]").forEach(checkTyped);
  document.querySelectorAll("[data-refresh][id]").forEach(keepFresh);
  document.querySelectorAll("[data-stream]").forEach(follow);
  document.querySelectorAll("[data-file-into]").forEach(readInto);
})();
