// What pages do better with a script; without it they say and do the same.
"use strict";
(() => {
  // Times are told in UTC; the reader's zone stands beside where it is another one.
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  function tellTimes(within) {
    for (const each of within.querySelectorAll("time[datetime]")) {
      const at = new Date(each.dateTime);
      if (isNaN(at) || each.dataset.told) continue;
      each.dataset.told = "yes";
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
    const say = () => { button.textContent = isPaused ? "Go on" : "Pause"; };
    button.title = "This page is told anew every " + part.dataset.refresh + " seconds";
    button.addEventListener("click", () => { isPaused = !isPaused; say(); });
    say();
    part.before(button);
    setInterval(() => { if (!isPaused && !document.hidden && !isUsed(part)) refresh(part).catch(() => {}); }, every);
  }

  // What is typed is checked a moment later. The text and the form are told what became of the other one; a submit button does it all
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
      document.getElementById("told").value = fresh.getElementById("told").value;
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

  document.querySelectorAll("[data-file-into]").forEach(readInto);
  tellTimes(document);
  document.querySelectorAll("form[data-check]").forEach(checkTyped);
  document.querySelectorAll("[data-refresh][id]").forEach(keepFresh);
})();
