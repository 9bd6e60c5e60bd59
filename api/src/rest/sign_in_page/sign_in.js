
"use strict";
const element = (id) => document.getElementById(id);
const show = (id, shown = true) => { element(id).hidden = !shown; };
const base = new URL(".", location.href).href;
const link = new URLSearchParams(location.hash.slice(1)).get("token");

async function post(path, body) {
  const response = await fetch(base + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    credentials: "omit",
  });
  return { ok: response.ok, body: await response.json() };
}

function problem(text) {
  element("problem").textContent = text;
  show("problem");
}

async function attempt(button, action) {
  button.disabled = true;
  show("problem", false);
  try {
    await action();
  } catch {
    problem("The server could not be reached. Try again.");
  }
  button.disabled = false;
}

element("enter").addEventListener("click", (event) => attempt(event.target, async () => {
  const { ok, body } = await post("v1/auth/email/verify", { token: link });
  if (!ok) {
    problem(body.error.message);
    // An invalid link stays invalid. After other errors, the user can try again.
    if (body.error.code === "invalid_token") {
      show("link", false);
      show("request");
    }
    return;
  }
  history.replaceState(null, "", location.pathname);
  element("token").value = body.token;
  element("first").textContent = `curl ${base}v1/me -H 'Authorization: Bearer ${body.token}'`;
  element("end").textContent = `curl -X DELETE ${base}v1/session -H 'Authorization: Bearer ${body.token}'`;
  show("link", false);
  show("session");
}));

element("copy").addEventListener("click", async () => {
  element("token").select();
  await navigator.clipboard.writeText(element("token").value);
});

element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(event.submitter, async () => {
    const { ok, body } = await post("v1/auth/email", { email: element("email").value });
    if (!ok) {
      problem(body.error.message);
      return;
    }
    show("request", false);
    show("sent");
  });
});

show(link ? "link" : "request");
