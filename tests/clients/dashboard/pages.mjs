// Every page in both themes: accessible, within its window, light, and complete without scripts.

import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";

import { assertAccessible, assertReadable, overflow, play, step, unfold } from "./helpers.mjs";

const WEIGHT_MAX = 30 * 1024;
const DESKTOP = { width: 1280, height: 800 };
const BACKGROUNDS = { light: "rgb(255, 255, 255)", dark: "rgb(18, 21, 27)" };

// The actions that lead from a page to the one that is checked.
const ACTIONS = {
  fill: (page, label, text) => page.getByRole("main").getByLabel(label, { exact: true }).fill(text),
  press: (page, button) => page.getByRole("main").getByRole("button", { name: button, exact: true }).click(),
  // The form looks as if it was opened in an earlier session.
  outdate: (page) => page.evaluate(() => document.querySelectorAll("main [name=csrf]").forEach((field) => (field.value = "earlier"))),
};

// Opens a page, and waits for its content.
async function visit(page, { path, status, title, text, actions }) {
  // An active job's page waits for its next change, so its network is never idle.
  const response = await page.goto(path, { waitUntil: "load" });
  assert.equal(response.status(), status, path);
  for (const [action, ...values] of actions) await ACTIONS[action](page, ...values);
  await page.getByRole("main").getByText(text).locator("visible=true").first().waitFor();
  assert.equal(await page.title(), `${title} · Assay`);
  assert.equal(await page.getByRole("heading", { level: 1 }).count(), 1);
}

// Checks that the page shows its content without scrolling to the right: in a narrow window, and with large text.
async function assertFits(page, text) {
  const found = [];
  for (const [size, width] of [["100%", 320], ["200%", 1280], ["200%", 640]]) {
    await page.setViewportSize({ ...DESKTOP, width });
    await page.evaluate((size) => (document.documentElement.style.fontSize = size), size);
    const wide = await overflow(page);
    const shown = await page.getByRole("main").getByText(text).locator("visible=true").count();
    if (shown === 0) wide.push(`${text} is not visible`);
    if (wide.length) found.push([`${width} px, text at ${size}`, ...wide]);
  }
  await page.setViewportSize(DESKTOP);
  assert.deepEqual(found, []);
}

// Stores the page's picture in each theme.
async function takePictures(page, folder, name) {
  const file = name.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "home";
  for (const theme of ["dark", "light"]) {
    await page.evaluate((theme) => (document.documentElement.dataset.theme = theme), theme);
    await page.screenshot({ path: `${folder}/${file}-${theme}.png`, fullPage: true });
  }
}

// Runs a check that does not end the scenario if it fails: a run reports all pages' failures.
const failed = [];
async function check(name, visitor, act) {
  try {
    await act(visitor.page);
    visitor.assertClean();
  } catch (error) {
    failed.push(name);
    console.error(`${name}: ${error.message}\n`);
  }
}

// Checks a page colour that the theme gives it.
async function assertTheme(page, theme) {
  const background = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  assert.equal(background, BACKGROUNDS[theme]);
}

// Returns a page's compressed size with the files that it loads.
const files = new Map();
async function weight(page) {
  const urls = await page.evaluate(() => [...document.querySelectorAll("link[href], script[src], img[src]")].map(({ href, src }) => href ?? src));
  for (const url of urls) {
    if (files.has(url)) continue;
    files.set(url, gzipSync(Buffer.from(await (await fetch(url)).arrayBuffer())).length);
  }
  const sizes = urls.map((url) => files.get(url));
  return sizes.reduce((sum, size) => sum + size, gzipSync(await page.content()).length);
}

await play(async ({ open, input }) => {
  // Opens a profile for each user.
  async function openAll(options) {
    const users = {};
    for (const [name, session] of Object.entries(input.sessions)) {
      users[name] = await open({ viewport: DESKTOP, ...options });
      if (session) await users[name].resume(session);
    }
    return users;
  }

  // Opens a profile for each user, with a theme that the owner chooses on the account's page.
  async function openWithTheme(theme) {
    // The system prefers the other theme, so only the user's choice can cause a page's theme.
    const users = await openAll({ colorScheme: theme === "light" ? "dark" : "light" });
    const { page, context } = users.owner;
    await page.goto("/account");
    await page.getByRole("radio", { name: theme }).check();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.locator(`html[data-theme=${theme}]`).waitFor();
    const cookie = (await context.cookies()).find(({ name }) => name === "__Host-assay_theme");
    for (const user of Object.values(users)) await user.store(cookie.name, cookie.value);
    return users;
  }

  async function checkLight(states) {
    const users = await openWithTheme("light");
    for (const state of states) {
      await check(`${state.name} in the light theme`, users[state.user], async (page) => {
        await visit(page, state);
        await assertTheme(page, "light");
        const bytes = await weight(page);
        assert.ok(bytes <= WEIGHT_MAX, `${bytes} bytes`);
        if (input.screenshots) await takePictures(page, input.screenshots, state.name);
        await unfold(page);
        await assertAccessible(page, "light");
        // The same document in the other colours.
        await page.evaluate(() => (document.documentElement.dataset.theme = "dark"));
        await assertTheme(page, "dark");
        await assertReadable(page, "dark");
        await assertFits(page, state.text);
      });
    }
  }

  async function checkDark() {
    const users = await openWithTheme("dark");
    for (const state of input.pages) {
      await check(`${state.name} in the dark theme`, users[state.user], async (page) => {
        await visit(page, state);
        await assertTheme(page, "dark");
        assert.equal(await page.locator("html[data-theme=dark]").count(), 1, "the theme is an attribute of the page");
      });
    }
    await check("menus", users.owner, async (page) => {
      for (const width of [DESKTOP.width, 320]) {
        await page.setViewportSize({ ...DESKTOP, width });
        await page.goto("/");
        await assertAccessible(page, `${width} px`);
        for (const menu of await page.locator("details.menu").all()) {
          if (!(await menu.isVisible())) continue;
          await menu.locator("summary").click();
          assert.deepEqual(await overflow(page), [], `menu at ${width} px`);
          await assertAccessible(page, `menu at ${width} px`);
          await menu.locator("summary").click();
        }
      }
    });
  }

  async function checkWithoutScripts() {
    const users = await openAll({ javaScriptEnabled: false });
    for (const state of input.pages) {
      await check(`${state.name} without scripts`, users[state.user], (page) => visit(page, state));
    }
  }

  // Concurrently, because a browser uses several processors.
  await step("all pages", async () => {
    const middle = Math.ceil(input.pages.length / 2);
    const halves = [input.pages.slice(0, middle), input.pages.slice(middle)];
    await Promise.all([...halves.map(checkLight), checkDark(), checkWithoutScripts()]);
    assert.deepEqual(failed, []);
  });
});
