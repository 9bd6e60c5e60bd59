//! What is written to people.

use std::fmt::Write as _;

use super::Letter;

/// The link to sign in with.
pub fn sign_in(public_url: &str, to: &str, token: &str) -> Letter {
    let link = format!("{public_url}/sign-in#token={token}");
    let curl =
        format!("curl -X POST {public_url}/v1/auth/email/verify -H 'Content-Type: application/json' -d '{{\"token\": \"{token}\"}}'");
    let aside =
        "The link works once, within the next 15 minutes. If you did not ask for it, ignore this mail: nothing happens without the link.";
    letter(
        to,
        "Your link to sign in to Assay",
        &[
            Part::Text("Hello,"),
            Part::Text("here is your link to sign in to Assay:"),
            Part::Link("Sign in", &link),
            Part::Text("Or, without a browser:"),
            Part::Code(&curl),
            Part::Text(aside),
        ],
    )
}

/// The news that somebody is invited. It holds no secret: whoever signs in with the address has shown that it is theirs.
pub fn invite(public_url: &str, to: &str, org: &str, role: &str) -> Letter {
    let link = format!("{public_url}/sign-in");
    let invited = format!("you are invited to the organization “{org}” on Assay, as {role}.");
    let address = format!("To accept, sign in within 14 days with this address, {to}:");
    letter(
        to,
        &format!("You are invited to {org} on Assay"),
        &[
            Part::Text("Hello,"),
            Part::Text(&invited),
            Part::Text(&address),
            Part::Link("Sign in", &link),
            Part::Text("If you do not know who this is, ignore this mail: nothing happens unless you sign in."),
        ],
    )
}

enum Part<'a> {
    Text(&'a str),
    Link(&'a str, &'a str),
    Code(&'a str),
}

fn letter(to: &str, subject: &str, parts: &[Part<'_>]) -> Letter {
    let (mut text, mut html) = (String::new(), String::new());
    for part in parts {
        // Writing to a text cannot fail.
        let _ = match part {
            Part::Text(words) => write!(text, "{words}\r\n\r\n").and_then(|()| write!(html, "<p>{}</p>", escape(words))),
            Part::Link(label, link) => write!(text, "    {link}\r\n\r\n")
                .and_then(|()| write!(html, "<p><a href=\"{0}\">{1}</a><br><small>{0}</small></p>", escape(link), escape(label))),
            Part::Code(code) => write!(text, "    {code}\r\n\r\n").and_then(|()| write!(html, "<pre>{}</pre>", escape(code))),
        };
    }
    let html = format!("<!doctype html><html lang=\"en\"><body style=\"font-family: sans-serif\">{html}</body></html>");
    Letter { to: to.to_owned(), subject: subject.to_owned(), text, html }
}

/// A text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_and_not_markup() {
        let letter = invite("https://assay.example", "ada@example.org", "<b>\"A\" & 'B'</b>", "member");
        assert!(letter.html.contains("&lt;b&gt;&quot;A&quot; &amp; &#39;B&#39;&lt;/b&gt;") && !letter.html.contains("<b>"));
        assert!(letter.text.contains("<b>\"A\" & 'B'</b>") && letter.text.contains("https://assay.example/sign-in\r\n"));
    }
}
