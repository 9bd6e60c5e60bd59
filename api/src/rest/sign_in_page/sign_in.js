
"use strict";
const part = (id) => document.getElementById(id);
const show = (id, shown = true) => { part(id).hidden = !shown; };
const base = new URL(".", location.href).href;
const link = new URLSearchParams(location.hash.slice(1)).get("token");

async function post(path, body) {
  const answer = await fetch(base + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    credentials: "omit",
  });
  return { ok: answer.ok, body: await answer.json() };
}

function problem(text) {
  part("problem").textContent = text;
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

part("enter").addEventListener("click", (event) => attempt(event.target, async () => {
  const { ok, body } = await post("v1/auth/email/verify", { token: link });
  if (!ok) {
    problem(body.error.message);
    // What is over stays over; what the server could not do now, it may do in a moment.
    if (body.error.code === "invalid_token") {
      show("link", false);
      show("request");
    }
    return;
  }
  history.replaceState(null, "", location.pathname);
  part("token").value = body.token;
  part("first").textContent = `curl ${base}v1/me -H 'Authorization: Bearer ${body.token}'`;
  part("end").textContent = `curl -X DELETE ${base}v1/session -H 'Authorization: Bearer ${body.token}'`;
  show("link", false);
  show("session");
}));

part("copy").addEventListener("click", async () => {
  part("token").select();
  await navigator.clipboard.writeText(part("token").value);
});

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(event.submitter, async () => {
    const { ok, body } = await post("v1/auth/email", { email: part("email").value });
    if (!ok) {
      problem(body.error.message);
      return;
    }
    show("request", false);
    show("sent");
  });
});

show(link ? "link" : "request");
