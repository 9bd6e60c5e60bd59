// A team's first day: sign in, create an organization and a key, submit files and compare their scores, invite a colleague and
// remove them.

import assert from "node:assert/strict";

import { ask, assertAccessible, call, eventually, file, heading, play, shows, step } from "./helpers.mjs";

const ADA = "ada@example.org";
const BOB = "bob@example.org";

// Opens a section by the navigation.
async function section(page, name) {
  await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name, exact: true }).click();
}

// Creates a key, and returns its secret.
async function createKey(page, name) {
  await section(page, "Keys");
  await heading(page, "API keys");
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByRole("button", { name: "Create" }).click();
  await shows(page, `The key ${name} was created.`);
  return page.getByLabel("the secret", { exact: true }).innerText();
}

// Uploads a file on the Submit tab, and waits for the next page.
async function upload(page, suite, label, contents) {
  await section(page, "Suites");
  await page.getByRole("link", { name: suite }).click();
  await page.getByRole("navigation", { name: "Suite" }).getByRole("link", { name: "Submit", exact: true }).click();
  await send(page, label, contents);
}

async function send(page, label, contents) {
  await page.getByLabel("Label").fill(label);
  await page.getByLabel("File with predictions").setInputFiles(contents);
  await page.getByRole("button", { name: "Upload and check" }).click();
  await page.waitForURL(/\/submissions\/upl_/);
}

async function submit(page) {
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/job_/);
  return new URL(page.url()).pathname.split("/").at(-1);
}

await play(async ({ open, input }) => {
  const { suite, predictions, others } = input;
  const ada = await open({ permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = ada;
  const secretIsShown = async () => (await page.content()).includes(secret);

  await step("sign in by a link", async () => {
    await page.goto("/");
    await heading(page, "Sign in");
    await ada.signIn(ADA);
    await heading(page, "Create an organization");
  });

  await step("create an organization", async () => {
    await page.getByLabel("Name", { exact: true }).fill("Hopper & Co");
    await page.getByRole("button", { name: "Create" }).click();
    await heading(page, "Hopper & Co");
    await shows(page, "The organization Hopper & Co was created.");
    await shows(page, "First steps");
  });

  const secret = await step("create a key", () => createKey(page, "laptop"));

  await step("copy the secret", async () => {
    assert.match(secret, /^svc_live_[0-9A-Za-z]+$/);
    const line = await page.getByLabel("the line for a shell", { exact: true }).innerText();
    assert.ok(line.startsWith(`export ASSAY_API_KEY='${secret}' `), line);
    await page.getByRole("button", { name: "Copy the secret" }).click();
    await eventually("copying the secret", async () => (await page.evaluate(() => navigator.clipboard.readText())) === secret);
  });

  await step("use the key", async () => {
    const { status, body } = await call("/v1/me", secret);
    assert.deepEqual([status, body.principal, body.orgs.map(({ name }) => name)], [200, "api_key", ["Hopper & Co"]]);
  });

  await step("see the secret only once", async () => {
    assert.ok(await secretIsShown());
    await page.reload();
    await heading(page, "API keys");
    assert.ok(!(await secretIsShown()), "shown after a reload");
    await createKey(page, "second");
    const second = await page.getByLabel("the secret", { exact: true }).innerText();
    await section(page, "Home");
    await heading(page, "Hopper & Co");
    await page.goBack();
    await heading(page, "API keys");
    assert.ok(!(await page.content()).includes(second), "shown after Back");
  });

  await step("upload a broken file", async () => {
    const broken = [...predictions];
    broken[2] = "{\"item_id\": ";
    await upload(page, suite, "first try", file("broken.ndjson", broken));
    await shows(page, "The file cannot be scored");
    await shows(page, /\bline 3\b/);
  });

  await step("upload the corrected file", async () => {
    await page.getByRole("link", { name: "Choose another file" }).click();
    assert.equal(await page.getByLabel("Label").inputValue(), "first try", "the label is kept");
    await send(page, "by habit", file("habit.ndjson", predictions));
    await shows(page, `${predictions.length} of ${predictions.length} items`);
    await shows(page, `This submission uses ${predictions.length} of your`);
    assert.equal(await page.getByLabel("Label").inputValue(), "by habit");
  });

  const first = await step("follow a job until it has a score", async () => {
    await ask("hold");
    const job = await submit(page);
    await heading(page, "by habit");
    await page.locator(".status", { hasText: /queued|running/ }).waitFor();
    await page.evaluate(() => (globalThis.isSamePage = true));
    await page.locator(".status.running").waitFor();
    await assertAccessible(page);
    await ask("release");
    await page.locator(".status.succeeded").waitFor();
    assert.ok(await page.evaluate(() => globalThis.isSamePage), "the page was loaded again");
    return job;
  });

  await step("read the score", async () => {
    const { body } = await call(`/v1/jobs/${first}`, secret);
    const value = Number(body.result.value.toFixed(4)).toString();
    assert.equal(await page.locator(".value").innerText(), value);
    await shows(page, `n = ${body.result.n}`);
    assert.equal(await page.title(), "by habit · Assay");
    assert.equal(body.label, "by habit");
  });

  const second = await step("submit another file", async () => {
    await upload(page, suite, "by menu", file("menu.ndjson", others));
    const job = await submit(page);
    await page.locator(".status.succeeded").waitFor();
    return job;
  });

  await step("compare two jobs of the list", async () => {
    await section(page, "Jobs");
    await heading(page, "Jobs");
    await page.getByRole("checkbox", { name: "Compare by habit" }).check();
    await page.getByRole("button", { name: "Compare the two selected" }).click();
    await shows(page, "Select two jobs. You have selected 1.");
    await section(page, "Jobs");
    await page.getByRole("checkbox", { name: "Compare by habit" }).check();
    await page.getByRole("checkbox", { name: "Compare by menu" }).check();
    await page.getByRole("button", { name: "Compare the two selected" }).click();
    await heading(page, "Compare two jobs");
    await shows(page, /^(A is better by 0\.\d+|No clear difference: 0\.\d+ in favour of A) \(accuracy, larger is better\)\. If both were equally good/);
    const sides = await page.getByRole("heading", { level: 2 }).getByRole("link").all();
    const linked = await Promise.all(sides.map((side) => side.getAttribute("href")));
    assert.deepEqual(linked, [`/jobs/${first}`, `/jobs/${second}`]);
  });

  await step("invite a colleague", async () => {
    await section(page, "Members");
    await heading(page, "Members");
    await page.getByLabel("Email address").fill(BOB);
    await page.getByRole("button", { name: "Invite" }).click();
    await shows(page, `${BOB} was invited.`);
    await page.getByRole("row", { name: BOB }).getByText("Invited, until").waitFor();
  });

  const bob = await open();
  const kept = await step("join as the colleague", async () => {
    await bob.page.goto("/");
    await bob.signIn(BOB);
    await heading(bob.page, "Hopper & Co");
    await section(bob.page, "Members");
    await bob.page.getByRole("row", { name: `${BOB} (you)` }).waitFor();
    return createKey(bob.page, "kept");
  });
  const revoked = await step("create another key", () => createKey(bob.page, "revoked"));

  await step("remove the colleague", async () => {
    await section(page, "Members");
    const row = page.getByRole("row", { name: BOB });
    assert.equal(await row.locator("[data-name='Live keys']").innerText(), "2");
    await row.getByRole("link", { name: `Remove ${BOB}` }).click();
    await heading(page, `Remove ${BOB}`);
    await page.getByRole("checkbox", { name: /^kept / }).waitFor();
    await page.getByRole("checkbox", { name: /^revoked / }).check();
    await page.getByRole("button", { name: "Remove the member" }).click();
    await shows(page, "The member was removed.");
    assert.equal(await page.getByRole("row", { name: BOB }).count(), 0);
  });

  await step("keep the key that was not selected", async () => {
    assert.deepEqual([(await call("/v1/me", kept)).status, (await call("/v1/me", revoked)).status], [200, 401]);
  });

  await step("see nothing of the organization as the former member", async () => {
    await section(bob.page, "Jobs");
    await heading(bob.page, "Create an organization");
    const text = await bob.page.content();
    assert.ok(!text.includes("Hopper") && !text.includes("by habit"), text);
  });
});
