// Names, labels, files and queries that try to become markup, to reorder text, or to burst the layout.

import assert from "node:assert/strict";

import { ask, file, heading, overflow, play, step, unfold } from "./helpers.mjs";

const NAMES = {
  script: "<script>alert(1)</script>",
  attribute: `"><img src=x onerror=alert(1)> '`,
  entity: "&lt;b&gt; &amp;amp; {{ 7*7 }} %3Cb%3E",
  bidirectional: "\u202Egpj.\u2066exe\u200F abc \u202D",
  combining: "Z\u0351\u036B\u0352".repeat(50),
  // The longest name, without a place to break it.
  long: "W".repeat(200),
};
// What organization and key names can be: they change no other text's direction.
const { bidirectional: HIDDEN, ...VISIBLE } = NAMES;
const TOO_LONG = "<b>x</b> ".repeat(1111) + "x";

// Checks that a page shows a text as it is, and fits into a narrow window.
async function assertShown(page, text) {
  const isShown = await page.evaluate((text) => {
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { data, parentElement } = walker.currentNode;
      if (data.includes(text) && parentElement.checkVisibility()) return true;
    }
    return false;
  }, text);
  assert.ok(isShown, `the page does not show ${text}`);
  await assertFits(page);
}

async function assertFits(page) {
  assert.deepEqual(await overflow(page), [], page.url());
}

// Checks that a form is shown again with what was typed and the reason.
async function assertRejected(page, field, typed) {
  await page.getByRole("alert").waitFor();
  assert.equal(await field.inputValue(), typed, "the typed text is kept");
  await assertFits(page);
}

await play(async ({ open, input }) => {
  const { suite, predictions } = input;
  const user = await open({ viewport: { width: 320, height: 800 } });
  const { page } = user;
  const main = page.getByRole("main");
  // Types a text that the browser would cut off. A user's script could send it as well.
  const type = async (field, text) => {
    await field.evaluate((element) => element.removeAttribute("maxlength"));
    await field.fill(text);
  };
  const submit = (name) => main.getByRole("button", { name, exact: true }).click();

  await step("page of a link that a hostile program requested", async () => {
    await page.goto(`/sign-in?token=${await ask("hostile link", { email: "eve@example.org", program: NAMES.attribute })}`);
    await assertShown(page, NAMES.attribute.trim());
    await submit("Sign in");
    await heading(page, "Create an organization");
  });

  await step("name of an organization", async () => {
    await type(main.getByLabel("Name"), TOO_LONG);
    await submit("Create");
    await assertRejected(page, main.getByLabel("Name"), TOO_LONG);
    await main.getByLabel("Name").fill(NAMES.script);
    await submit("Create");
    await heading(page, NAMES.script);
    await page.goto("/settings");
    await type(main.getByLabel("Name of the organization"), HIDDEN);
    await submit("Save");
    await assertRejected(page, main.getByLabel("Name of the organization"), HIDDEN);
    for (const name of Object.values(VISIBLE)) {
      await page.goto("/settings");
      await main.getByLabel("Name of the organization").fill(name);
      await submit("Save");
      await main.getByText("The settings were saved.").waitFor();
      assert.equal(await main.getByLabel("Name of the organization").inputValue(), name.trim());
      await page.goto("/");
      await assertShown(page, name.trim());
      await page.locator("summary").nth(1).click();
      await assertFits(page);
      await page.goto("/choose");
      await assertShown(page, name.trim());
    }
  });

  await step("names of keys", async () => {
    for (const name of Object.values(VISIBLE)) {
      await page.goto("/keys");
      await main.getByLabel("Name", { exact: true }).fill(name);
      await submit("Create");
      await main.getByText("Your new key").waitFor();
      await assertShown(page, `The key ${name.trim()} was created.`);
      await page.getByRole("link", { name: `Revoke ${name.trim()}` }).click();
      await heading(page, `Revoke ${name.trim()}`);
      await assertShown(page, name.trim());
      await submit("Revoke the key");
      await assertShown(page, `The key ${name.trim()} was revoked.`);
    }
    await type(main.getByLabel("Name", { exact: true }), TOO_LONG);
    await submit("Create");
    await assertRejected(page, main.getByLabel("Name", { exact: true }), TOO_LONG.trim());
  });

  await step("files", async () => {
    await page.goto(`/suites/${suite}/submit`);
    const line = (id) => JSON.stringify({ item_id: id, prediction: id });
    const lines = [line(NAMES.attribute), `${line(NAMES.script)} ${NAMES.script}`];
    const choose = (name, lines) => main.getByLabel("File with predictions").setInputFiles(file(`${name}.ndjson`, lines));
    await type(main.getByLabel("Label"), TOO_LONG);
    await choose(NAMES.attribute, lines);
    await submit("Upload and check");
    await assertRejected(page, main.getByLabel("Label"), TOO_LONG);
    await main.getByLabel("Label").fill(NAMES.attribute);
    await choose(NAMES.attribute, lines);
    await submit("Upload and check");
    await main.getByText("The file cannot be scored").waitFor();
    await assertFits(page);
    await main.getByRole("link", { name: "Choose another file" }).click();
    await main.getByLabel("File with predictions").waitFor();
    assert.equal(await main.getByLabel("Label").inputValue(), NAMES.attribute.trim(), "the typed text is kept");
    await choose(NAMES.script, predictions);
    await submit("Upload and check");
    await main.getByText("The file is checked").waitFor();
    await type(main.getByLabel("Label"), TOO_LONG);
    await submit("Submit");
    await assertRejected(page, main.getByLabel("Label"), TOO_LONG);
  });

  await step("labels", async () => {
    const labels = Object.values(NAMES).map((name) => name.trim());
    await ask("jobs", { labels });
    for (const label of labels) {
      await page.goto("/search");
      const box = page.getByRole("searchbox");
      await box.fill(label);
      await box.press("Enter");
      await page.waitForURL(/\/jobs\/job_/);
      await heading(page, label);
      await page.locator(".status.succeeded").waitFor();
      await assertShown(page, label);
      assert.equal(await page.title(), `${label} · Assay`);
      await page.getByRole("link", { name: "Submit again" }).click();
      await main.getByLabel("Label").waitFor();
      assert.equal(await main.getByLabel("Label").inputValue(), label);
      await assertFits(page);
    }
    for (const path of ["/jobs", `/suites/${suite}/history`, "/"]) {
      await page.goto(path);
      await unfold(page);
      for (const label of labels) await assertShown(page, label);
    }
    await page.goto("/jobs");
    for (const label of labels.slice(0, 2)) await page.getByRole("checkbox", { name: `Compare ${label}`, exact: true }).check();
    await submit("Compare the two selected");
    await heading(page, "Compare two jobs");
    for (const label of labels.slice(0, 2)) await assertShown(page, label);
  });

  await step("queries", async () => {
    await page.goto(`/search?q=${encodeURIComponent(TOO_LONG)}`);
    await heading(page, "This is not possible");
    // The longest query that the server reads.
    for (const text of [...Object.values(VISIBLE), TOO_LONG.slice(0, 3000)]) {
      const query = encodeURIComponent(text);
      await page.goto(`/search?q=none${query}`);
      await main.getByText("Nothing with the id or label").waitFor();
      await assertShown(page, `none${text}`.slice(0, 100).trim());
      await page.goto(`/suites/${suite}/submit?label=${query}`);
      assert.equal(await main.getByLabel("Label").inputValue(), text.trim());
      await assertFits(page);
      for (const path of ["/jobs?label=", "/jobs?status=", "/jobs?before=", "/usage?from=", "/compare?a=", "/sign-in?next="]) {
        await page.goto(`${path}${query}`);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await assertFits(page);
      }
    }
  });

  await step("codes", async () => {
    // A user can enter ten codes in a minute. The next step enters the others.
    for (const text of [NAMES.script, TOO_LONG.slice(0, 3000)]) {
      await page.goto(`/device?code=${encodeURIComponent(text)}`);
      await heading(page, "Connect a program");
      await assertFits(page);
    }
  });

  await step("name of a program", async () => {
    for (const name of Object.values(VISIBLE)) {
      const { user_code: code } = await ask("start", name.trim());
      await page.goto(`/device?code=${code}`);
      await main.getByText("asks for an API key").waitFor();
      await assertShown(page, name.trim());
    }
  });
});
