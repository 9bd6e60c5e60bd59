//! A browser without a screen: it stores cookies, sends the browser headers, reads forms, and
//! follows no redirects. It checks every page's headers and every cookie.

use std::collections::BTreeMap;

use assay_tests::client::http_builder;
use reqwest::header::{HeaderMap, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder};

use crate::harness::World;

/// The session's cookie.
pub const SESSION: &str = "__Host-assay_session";

/// The `Accept` header that browsers send to open a page.
const ACCEPT: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Every page's headers, each with a piece of its value.
const PAGE_HEADERS: [(&str, &str); 16] = [
    ("content-security-policy", "default-src 'none'"),
    ("content-security-policy", "script-src 'self'"),
    ("content-security-policy", "style-src 'self'"),
    ("content-security-policy", "form-action 'self'"),
    ("content-security-policy", "base-uri 'none'"),
    ("content-security-policy", "frame-ancestors 'none'"),
    (
        "content-security-policy",
        "require-trusted-types-for 'script'",
    ),
    ("content-security-policy", "trusted-types assay"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("vary", "Cookie"),
    ("x-request-id", "req_"),
];

/// A browser with its own cookies.
#[derive(Clone)]
pub struct Visitor {
    http: reqwest::Client,
    url: String,
    /// The header `Accept`: the browsers', unless a test changes it.
    pub accept: &'static str,
    /// The cookies by name. A test may plant others.
    pub cookies: BTreeMap<String, String>,
}

/// A response with its complete body.
#[derive(Debug)]
pub struct Page {
    /// The request's path.
    pub path: String,
    /// The HTTP status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

/// A form's fields, each with its value.
pub type Fields = Vec<(String, String)>;

/// Returns fields from literals.
pub fn fields(literals: &[(&str, &str)]) -> Fields {
    literals
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

impl Visitor {
    /// Opens a browser without cookies.
    pub fn new(world: &World) -> Self {
        let http = http_builder().redirect(Policy::none());
        Self {
            http: http.build().unwrap(),
            url: world.stack.url(),
            accept: ACCEPT,
            cookies: BTreeMap::new(),
        }
    }

    /// Opens a browser that is signed in with a session's token.
    pub fn signed_in(world: &World, session: &str) -> Self {
        let mut visitor = Self::new(world);
        visitor.cookies.insert(SESSION.into(), session.into());
        visitor
    }

    /// Returns the pages' origin.
    pub fn origin(&self) -> &str {
        &self.url
    }

    /// Builds a navigation with the cookies.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .header("accept", self.accept);
        if cookies.is_empty() {
            request
        } else {
            request.header("cookie", cookies.join("; "))
        }
    }

    /// Builds a form as this site's pages send it.
    pub fn form(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("origin", &self.url)
            .header("sec-fetch-site", "same-origin")
    }

    /// Sends a request and stores its response's cookies.
    pub async fn send(&mut self, request: RequestBuilder) -> Page {
        let response = request.send().await.unwrap();
        let path = response.url().path().to_owned();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        for cookie in headers.get_all(SET_COOKIE) {
            self.store(cookie.to_str().unwrap());
        }
        let page = Page {
            path,
            status,
            headers,
            text,
        };
        if page.is_html() {
            page.assert_is_protected();
            page.assert_is_external();
        }
        page
    }

    /// Stores a cookie as browsers do, and checks that it is protected.
    fn store(&mut self, cookie: &str) {
        let mut parts = cookie.split("; ");
        let (name, value) = parts.next().unwrap().split_once('=').unwrap();
        let attributes: Vec<&str> = parts.collect();
        assert!(name.starts_with("__Host-"), "{cookie}");
        for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
            assert!(attributes.contains(&attribute), "{attribute}: {cookie}");
        }
        assert!(!cookie.contains("Domain="), "{cookie}");
        if attributes.contains(&"Max-Age=0") {
            self.cookies.remove(name);
        } else {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Opens a page.
    pub async fn get(&mut self, path: &str) -> Page {
        self.send(self.request(Method::GET, path)).await
    }

    /// Opens a page and the pages that it redirects to.
    pub async fn open(&mut self, path: &str) -> Page {
        let mut page = self.get(path).await;
        for _ in 0..5 {
            if page.status != 303 {
                break;
            }
            let location = page.location().to_owned();
            page = self.get(&location).await;
        }
        page
    }

    /// Sends these fields as this site's form.
    pub async fn post(&mut self, path: &str, fields: &Fields) -> Page {
        self.send(self.form(path).form(fields)).await
    }

    /// Fills in a page's form that is sent to `action`, and sends it.
    pub async fn submit(&mut self, page: &Page, action: &str, typed: &[(&str, &str)]) -> Page {
        let fields = page.form(action, typed);
        self.post(action, &fields).await
    }
}

impl Page {
    /// Asserts the status and returns the page. A failure prints the path and the body.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.path, self.text);
        self
    }

    /// Returns a header's value, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Returns the address that the page redirects to.
    pub fn location(&self) -> &str {
        assert_eq!(self.status, 303, "{}: {}", self.path, self.text);
        self.header("location")
    }

    /// Returns `true` if the response is a page.
    pub fn is_html(&self) -> bool {
        self.header("content-type") == "text/html; charset=utf-8"
    }

    /// Panics unless the response is a page with this status that contains the text.
    pub fn assert_shows(&self, status: u16, text: &str) {
        assert_eq!(self.status, status, "{}: {}", self.path, self.text);
        assert!(self.is_html(), "{}: {:?}", self.path, self.headers);
        assert!(self.text.contains(text), "{text}: {}", self.text);
    }

    /// Panics unless the response has the dashboard's headers.
    pub fn assert_is_protected(&self) {
        for (name, part) in PAGE_HEADERS {
            let value = self.header(name);
            assert!(value.contains(part), "{}: {name}: {value}", self.path);
        }
        let policy = self.header("content-security-policy");
        for word in ["unsafe", "http:", "https:", "data:", "*"] {
            assert!(!policy.contains(word), "{}: {policy}", self.path);
        }
    }

    /// Panics if the page has its own script or style, which the policy stops.
    fn assert_is_external(&self) {
        for (part, what) in [
            (" style=", "inline style"),
            ("<style", "inline style"),
            ("<script>", "inline script"),
            (" onclick=", "inline script"),
            ("src=\"http", "file of another origin"),
        ] {
            assert!(!self.text.contains(part), "{}: {what}", self.path);
        }
    }

    /// Returns the fields of the form that is sent to `action`, with what the user typed.
    pub fn form(&self, action: &str, typed: &[(&str, &str)]) -> Fields {
        let forms = self.text.split("<form ").skip(1);
        let wanted = format!("action=\"{action}\"");
        let form = forms
            .filter_map(|form| form.split("</form>").next())
            .find(|form| form.split('>').next().unwrap().contains(&wanted))
            .unwrap_or_else(|| panic!("no form {action} on {}: {}", self.path, self.text));
        let mut fields = Fields::new();
        for input in form.split("<input ").skip(1) {
            let tag = input.split('>').next().unwrap();
            let is_chosen = !tag.contains("type=\"checkbox\"") && !tag.contains("type=\"radio\"");
            if let (Some(name), true) = (attribute(tag, "name"), is_chosen) {
                fields.push((name, attribute(tag, "value").unwrap_or_default()));
            }
        }
        for area in form.split("<textarea ").skip(1) {
            let (tag, rest) = area.split_once('>').unwrap();
            let text = rest.split("</textarea>").next().unwrap();
            fields.push((attribute(tag, "name").unwrap(), unescape(text)));
        }
        for (name, value) in typed {
            fields.retain(|(field, _)| field != name);
            fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        fields
    }

    /// Returns the code that the page shows for a language.
    pub fn code(&self, language: &str) -> String {
        let copied = format!("aria-label=\"Copy {language}\"");
        let mut buttons = self.text.split("<button ").skip(1);
        let tag =
            buttons.find(|button| button.split("</button>").next().unwrap().contains(&copied));
        let tag = tag.unwrap_or_else(|| panic!("no code {language}: {}", self.text));
        attribute(tag, "data-copy").unwrap()
    }

    /// Returns a field's value in the form that is sent to `action`.
    pub fn value(&self, action: &str, name: &str) -> String {
        let fields = self.form(action, &[]);
        let field = fields.into_iter().find(|(field, _)| field == name);
        field
            .unwrap_or_else(|| panic!("no field {name}: {}", self.text))
            .1
    }
}

/// Returns a tag attribute's value.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    Some(unescape(rest.split('"').next()?))
}

/// Replaces the references that templates write instead of special characters.
fn unescape(text: &str) -> String {
    let mut text = text.to_owned();
    for (reference, character) in [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ] {
        text = text.replace(reference, character);
    }
    text
}
