// The scenarios' browser, and what every scenario checks on each page: it loads nothing from another origin, violates no
// policy, and logs no error.
//
// The first line on standard input is the task. The test answers questions of the scenario, which are lines on standard output,
// with further lines on standard input.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import axe from "axe-core";
import { chromium } from "playwright-core";

// The accessibility rules that every page follows.
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

// The timeout for one user action and its effect: longer on a busy machine.
const ACTION_TIMEOUT = 1000 * Number(process.env.ASSAY_TEST_WAIT_SECONDS ?? 180);

const replies = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { base, browser: launch, input } = JSON.parse((await replies.next()).value);
const visitors = [];
let running = "start of the browser";

// Asks the test, and returns its reply.
export async function ask(question, value = null) {
  process.stdout.write(`${JSON.stringify({ question, value })}\n`);
  const { value: line, done } = await replies.next();
  if (done) throw new Error("the test has ended");
  return JSON.parse(line);
}

// Runs one scenario step. Its name is part of the failure.
export async function step(name, act) {
  running = name;
  const result = await act();
  for (const visitor of visitors) visitor.assertClean();
  return result;
}

// A user with their own browser profile.
class Visitor {
  problems = [];

  // `origins` are other origins that the user opens.
  static async open(browser, { origins = [], ...options } = {}) {
    const visitor = new Visitor();
    const context = await browser.newContext({ baseURL: base, ...options });
    context.setDefaultTimeout(ACTION_TIMEOUT);
    visitor.context = context;
    await context.exposeFunction("reportViolation", (text) => visitor.problems.push(`violated policy: ${text}`));
    await context.addInitScript(() =>
      document.addEventListener("securitypolicyviolation", (event) =>
        globalThis.reportViolation(`${event.violatedDirective} by ${event.blockedURI} ${event.sample}`),
      ),
    );
    context.on("request", (request) => {
      const isExpected = [base, ...origins].some((origin) => request.url().startsWith(`${origin}/`));
      if (!isExpected) visitor.problems.push(`request to another origin: ${request.url()}`);
    });
    context.on("response", (response) => {
      // Navigations to error pages, and forms that scripts send, are part of the scenarios. The pages' files must exist.
      const isFile = !response.request().isNavigationRequest() && response.request().resourceType() !== "xhr";
      if (isFile && response.status() >= 400) visitor.problems.push(`${response.status()} for ${response.url()}`);
    });
    context.on("console", (message) => {
      // The listener above judges responses.
      const isNoise = message.text().startsWith("Failed to load resource: the server responded");
      if (message.type() === "error" && !isNoise) visitor.problems.push(`console: ${message.text()}`);
    });
    context.on("weberror", (error) => visitor.problems.push(`uncaught: ${error.error()}`));
    context.on("dialog", (dialog) => {
      visitor.problems.push(`dialog: ${dialog.message()}`);
      return dialog.dismiss();
    });
    visitor.page = await context.newPage();
    visitors.push(visitor);
    return visitor;
  }

  assertClean() {
    // A scenario that goes on after a failure reports each problem once.
    assert.deepEqual(this.problems.splice(0), []);
  }

  // Stores a cookie.
  async store(name, value) {
    // The browser sends `Secure` cookies to this machine also without TLS, but stores them only for an address with it.
    const url = base.replace("http:", "https:");
    await this.context.addCookies([{ name, value, url, secure: true, httpOnly: true, sameSite: "Lax" }]);
  }

  // Continues a session that the test has created.
  async resume(session) {
    await this.store("__Host-assay_session", session);
  }

  // Requests a link by email, and uses it. The browser must show the sign-in page's form.
  async signIn(email) {
    const { page } = this;
    await page.getByLabel("Email address").fill(email);
    await page.getByRole("button", { name: "Send me a link" }).click();
    await heading(page, "Check your email");
    await page.goto(`/sign-in?token=${await ask("link", email)}`);
    await heading(page, `Sign in as ${email}`);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL((url) => !url.pathname.startsWith("/sign-in"));
  }
}

// Runs a scenario, and exits with its result. The scenario opens its users' profiles with `open`.
export async function play(scenario) {
  let browser;
  try {
    browser = await chromium.launch({
      ...launch,
      env: { ...process.env, ...launch.env },
      args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"],
    });
    await scenario({ base, input, open: (options) => Visitor.open(browser, options) });
  } catch (error) {
    console.error(`step "${running}" failed: ${error.stack}`);
    for (const { page, problems } of visitors) {
      const text = await page.evaluate(() => document.body.innerText).catch(String);
      console.error(`\n== ${page.url().slice(0, 300)}\n${text.slice(0, 3000)}`);
      if (problems.length) console.error(`problems: ${problems.join("\n")}`);
    }
    process.exitCode = 1;
  } finally {
    await browser?.close();
    process.exit();
  }
}

// Waits for the page with this heading.
export async function heading(page, name) {
  await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
}

// Waits until the page shows a text.
export async function shows(page, text) {
  await page.getByText(text).locator("visible=true").first().waitFor();
}

// Opens all content that is closed at first.
export async function unfold(page) {
  await page.evaluate(() => document.querySelectorAll("main details").forEach((details) => (details.open = true)));
}

// Polls a condition until it is true.
export async function eventually(what, condition, timeout = ACTION_TIMEOUT) {
  const end = Date.now() + timeout;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`${what} did not happen`);
    await new Promise((over) => setTimeout(over, 100));
  }
}

// Checks a page's accessibility as it is. The script is not part of the page, so the page's policy stays active.
export async function assertAccessible(page, place = "") {
  await page.evaluate(axe.source);
  await assertNoViolations(page, { type: "tag", values: RULES }, place);
}

// Checks a page's colours again, after a change that affects nothing else.
export async function assertReadable(page, place) {
  await assertNoViolations(page, { type: "rule", values: ["color-contrast", "link-in-text-block"] }, place);
}

async function assertNoViolations(page, runOnly, place) {
  // No rule with these tags needs the style sheets, which axe would load again.
  const options = { runOnly, resultTypes: ["violations"], preload: false };
  const { violations } = await page.evaluate((options) => globalThis.axe.run(options), options);
  const elements = (nodes) => nodes.slice(0, 3).map((node) => `${node.html}: ${node.failureSummary}`);
  const found = violations.map(({ id, nodes }) => [id, ...elements(nodes)]);
  assert.deepEqual(found, [], place);
}

// Returns the elements that stick out of the page to the right, if the page can be scrolled sideways.
export async function overflow(page) {
  return page.evaluate(() => {
    const { clientWidth, scrollWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const out = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > clientWidth + 0.5);
    const name = (element) => `${element.tagName.toLowerCase()}${element.id && `#${element.id}`}.${element.getAttribute("class") ?? ""}`;
    const described = out.map((element) => `${name(element)} "${element.textContent.trim().slice(0, 60)}" ends at ${element.getBoundingClientRect().right}`);
    return [`the page is ${scrollWidth} px wide, its window ${clientWidth} px`, ...described.slice(-5)];
  });
}

// Returns an API operation's status, and its body.
export async function call(path, key) {
  const response = await fetch(`${base}${path}`, { headers: { Authorization: `Bearer ${key}` } });
  return { status: response.status, body: await response.json() };
}

// Returns a file for a form, from lines.
export function file(name, lines) {
  return { name, mimeType: "application/octet-stream", buffer: Buffer.from(lines.map((line) => `${line}\n`).join("")) };
}
