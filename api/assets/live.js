"use strict";
// Each page works without this script. It keeps parts of a page current, copies texts, and sends files with their progress.

const policy = window.trustedTypes?.createPolicy("assay", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

// Replaces an element by the element with the same id in a page.
async function replace(element, url) {
  const response = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!response.ok || response.redirected) throw new Error(`status ${response.status}`);
  const page = new DOMParser().parseFromString(policy.createHTML(await response.text()), "text/html");
  const fresh = page.getElementById(element.id);
  if (!fresh) throw new Error("the page has no such part");
  const focused = document.activeElement?.id;
  for (const box of element.querySelectorAll("input:checked")) fresh.querySelector(`#${box.id}`)?.setAttribute("checked", "");
  element.replaceChildren(...fresh.childNodes);
  Object.assign(element.dataset, { active: fresh.dataset.active ?? "" });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  reveal(element);
}

// Keeps an element with an active job current: the server answers when the job changes, or after data-wait seconds.
async function follow(element) {
  let failures = 0;
  while (element.dataset.active && failures < 5) {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    const url = new URL(location.href);
    if (element.dataset.wait) url.searchParams.set("wait", element.dataset.wait);
    const started = Date.now();
    try {
      await replace(element, url);
      failures = 0;
    } catch {
      failures += 1;
    }
    const pause = Number(element.dataset.every ?? 1000) * (failures + 1);
    await new Promise((over) => setTimeout(over, Math.max(0, pause - (Date.now() - started))));
  }
}

// Shows the buttons that copy a text.
function reveal(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    };
  }
}

// Sends a form with a file and shows how much of it is sent. Without the script, the browser sends the same form.
function send(form) {
  const line = form.querySelector("[data-progress]");
  const bar = line.querySelector("progress");
  const text = line.querySelector("span");
  const drop = form.querySelector(".drop");
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    form.elements.file.files = event.dataTransfer.files;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    const request = new XMLHttpRequest();
    const started = Date.now();
    let announced = 0;
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = loaded / total;
      if (Date.now() - announced < 5000 && loaded < total) return;
      announced = Date.now();
      const left = Math.ceil(((Date.now() - started) / 1000) * (total / loaded - 1));
      text.textContent = loaded < total ? `${Math.round((100 * loaded) / total)} % sent, ${left} s left` : "The file is sent and being checked.";
    };
    request.onload = () => {
      if (request.responseURL !== new URL(form.action).href) return location.assign(request.responseURL);
      const page = new DOMParser().parseFromString(policy.createHTML(request.responseText), "text/html");
      document.getElementById("main").replaceChildren(...page.getElementById("main").childNodes);
      start(document);
      document.querySelector(".problem")?.focus();
    };
    request.onerror = () => {
      button.disabled = false;
      text.textContent = "The connection was lost. Nothing was submitted. Send the file again.";
    };
    request.open("POST", form.action);
    request.setRequestHeader("Accept", "text/html");
    request.send(new FormData(form));
    button.disabled = true;
    line.hidden = false;
  });
}

function start(root) {
  reveal(root);
  for (const element of root.querySelectorAll("[data-active]")) follow(element);
  for (const form of root.querySelectorAll("form[data-upload]")) send(form);
}

start(document);
document.querySelector(".problem[role=alert]")?.focus();
