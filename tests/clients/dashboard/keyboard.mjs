// The main tasks without a pointer: Tab, Enter, Space and typing only. Each element with focus must show it.

import assert from "node:assert/strict";

import { ask, eventually, file, heading, play, shows, step } from "./helpers.mjs";

// No page in the scenario has more elements to focus.
const STOPS_MAX = 80;

// Checks that the element with focus, if there is one, has an outline and is in the window.
async function assertFocusIsVisible(page) {
  const look = () =>
    page.evaluate(() => {
      const focused = document.activeElement;
      if (!focused || focused === document.body) return null;
      // Browsers mark a date's parts themselves.
      const isDate = focused.type === "date";
      const { outlineStyle, outlineWidth } = getComputedStyle(focused);
      const { top, bottom, left, right, width, height } = focused.getBoundingClientRect();
      return {
        element: focused.outerHTML.slice(0, 200),
        hasOutline: isDate || (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2),
        hasSize: width > 0 && height > 0,
        isInWindow: bottom > 0 && top < innerHeight && right > 0 && left < innerWidth,
      };
    });
  const seen = await look();
  if (!seen) return;
  assert.ok(seen.hasOutline, `no outline: ${seen.element}`);
  assert.ok(seen.hasSize, `invisible: ${seen.element}`);
  // Pages scroll smoothly to the element.
  await eventually(`scrolling to ${seen.element}`, async () => (await look())?.isInWindow ?? true);
}

// Presses Tab until an element has focus.
async function tabTo(page, target) {
  await target.waitFor();
  for (let stops = 0; stops < STOPS_MAX; stops += 1) {
    await page.keyboard.press("Tab");
    const isThere = await target.evaluate((element) => document.activeElement === element);
    await assertFocusIsVisible(page);
    if (isThere) return;
  }
  assert.fail(`Tab does not reach ${target}`);
}

async function type(page, label, text) {
  await tabTo(page, page.getByRole("main").getByLabel(label, { exact: true }));
  await page.keyboard.type(text);
}

async function press(page, target, key = "Enter") {
  await tabTo(page, target);
  await page.keyboard.press(key);
}

// Presses Enter on an element with focus or on `target`, and waits until the next page has replaced this one. The next page can
// have the same heading and links, so waiting for one could go on with this page.
async function leave(page, target) {
  if (target) await tabTo(page, target);
  const left = page.waitForEvent("framenavigated");
  await page.keyboard.press("Enter");
  await left;
}

await play(async ({ open, input }) => {
  const { suite, predictions, others, sealed } = input;
  const { page } = await open();
  const button = (name) => page.getByRole("main").getByRole("button", { name, exact: true });
  const link = (name) => page.getByRole("main").getByRole("link", { name, exact: true });
  const section = (name) => page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name, exact: true });

  await step("sign in", async () => {
    await page.goto("/sign-in");
    await type(page, "Email address", "ada@example.org");
    await leave(page, button("Send me a link"));
    await heading(page, "Check your email");
    await page.goto(`/sign-in?token=${await ask("link", "ada@example.org")}`);
    await leave(page, button("Sign in"));
    await heading(page, "Create an organization");
    await type(page, "Name", "Keys only");
    await leave(page);
    await heading(page, "Keys only");
  });

  await step("skip the navigation", async () => {
    await page.goto("/suites");
    await page.keyboard.press("Tab");
    const skip = page.getByRole("link", { name: "Skip to the content" });
    assert.ok(await skip.evaluate((element) => document.activeElement === element), "the skip link is the first stop");
    await assertFocusIsVisible(page);
    await page.keyboard.press("Enter");
    assert.ok(await page.evaluate(() => document.activeElement?.id === "main"), "the content has focus");
    await page.keyboard.press("Tab");
    const isInside = await page.evaluate(() => document.querySelector("main").contains(document.activeElement));
    assert.ok(isInside, "the next stop is in the content");
  });

  await step("create a key", async () => {
    await leave(page, section("Keys"));
    await heading(page, "API keys");
    await type(page, "Name", "laptop");
    await press(page, page.locator("summary", { hasText: "Restrict what the key may do" }));
    await press(page, page.getByRole("checkbox", { name: "jobs:read", exact: true }), " ");
    await leave(page, button("Create"));
    await shows(page, "The key laptop was created.");
    await page.getByRole("row", { name: /laptop/ }).getByText("jobs:read").waitFor();
  });

  await step("correct a form that was rejected", async () => {
    await leave(page, section("Keys"));
    await heading(page, "API keys");
    await type(page, "Name", " ");
    await leave(page);
    const summary = page.getByRole("alert");
    await summary.waitFor();
    assert.ok(await summary.evaluate((element) => document.activeElement === element), "the summary has focus");
    await press(page, summary.getByRole("link", { name: "name" }));
    const field = page.getByRole("main").getByLabel("Name", { exact: true });
    assert.ok(await field.evaluate((element) => document.activeElement === element), "the link leads to the field");
  });

  // Submits a file on a suite's page, and waits for its score.
  const submit = async (suite, label, lines) => {
    await leave(page, section("Suites"));
    await leave(page, link(suite));
    await leave(page, page.getByRole("navigation", { name: "Suite" }).getByRole("link", { name: "Submit", exact: true }));
    await type(page, "Label", label);
    await tabTo(page, page.getByLabel("File with predictions"));
    const chooser = page.waitForEvent("filechooser");
    await page.keyboard.press("Space");
    await (await chooser).setFiles(file("predictions.ndjson", lines));
    await leave(page, button("Upload and check"));
    await shows(page, "The file is checked");
    await leave(page, button("Submit"));
    await heading(page, label);
    await page.locator(".status.succeeded").waitFor();
  };

  for (const [label, lines] of [["by habit", predictions], ["by menu", others]]) {
    await step(`submit ${label}`, () => submit(suite, label, lines));
  }

  await step("compare two jobs", async () => {
    await leave(page, section("Jobs"));
    await heading(page, "Jobs");
    for (const label of ["by menu", "by habit"]) await press(page, page.getByRole("checkbox", { name: `Compare ${label}` }), " ");
    await leave(page, button("Compare the two selected"));
    await shows(page, "(accuracy, larger is better)");
  });

  await step("enter the board of a sealed suite", async () => {
    await submit(sealed.suite, "sealed", sealed.predictions);
    await leave(page, link("Enter the board"));
    await type(page, "Name on the board", "keys only");
    await press(page, page.getByLabel("Mark the job as final"), " ");
    await leave(page, button("Mark as final and enter"));
    await shows(page, "keys only has entered the board.");
  });

  await step("sign out", async () => {
    await press(page, page.locator("summary", { hasText: "ada@example.org" }));
    await leave(page, page.getByRole("button", { name: "Sign out", exact: true }));
    await heading(page, "Sign in");
  });
});
