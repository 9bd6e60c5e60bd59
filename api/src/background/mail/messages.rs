//! What is written to people.

use std::fmt::Write as _;

use assay_core::Timestamp;
use assay_core::model::validation;

use super::{Email, Kind};

/// The link to sign in with. `next_at` is when the next mail can be sent, if this is the last one for now.
pub fn sign_in(public_url: &str, to: &str, token: &str, next_at: Option<Timestamp>) -> Email {
    let link = format!("{public_url}/sign-in#token={token}");
    let curl = format!(
        "curl -X POST {public_url}/v1/auth/email/verify -H 'Content-Type: application/json' -d '{{\"token\": \"{token}\"}}'"
    );
    let validity = "The link works once, within the next 15 minutes. Signing in ends all other links that were sent to this address. If you \
                    did not ask for it, ignore this mail: nothing happens without the link.";
    let mut parts = vec![
        Part::Text("Hello,"),
        Part::Text("here is your link to sign in to Assay:"),
        Part::Link("Sign in", &link),
        Part::Text("Or, without a browser:"),
        Part::Code(&curl),
        Part::Text(validity),
    ];
    let last = next_at.map(|next_at| {
        format!(
            "This is the last mail for now, because many links were requested for this address. No other mail follows before {}. This link, \
             and the other links of the last 15 minutes, work until then.",
            clock_time(next_at)
        )
    });
    parts.extend(last.as_deref().map(Part::Text));
    email(Kind::SignIn, to, "Your link to sign in to Assay", &parts)
}

/// A time as readers of a mail see it: `14:05:09 UTC`.
fn clock_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(11..19).unwrap_or(&text))
}

/// The mail of an invite. It holds no secret: whoever signs in with the address has shown that it is theirs.
///
/// The organization's name is the words of whoever named it. It is quoted, in the text alone, and left out if it could be taken for a
/// link; `inviter` is the verified address of the user who invites.
pub fn invite(public_url: &str, to: &str, org: &str, inviter: &str, role: &str) -> Email {
    let link = format!("{public_url}/sign-in");
    let org = match validation::has_link(org) {
        true => String::from("an organization"),
        // A quotation mark in the name would end the quotation.
        false => format!(
            "the organization “{}”",
            org.replace(['“', '”', '„', '"'], "'")
        ),
    };
    let invited = format!("{inviter} invites you to {org} on Assay, as {role}.");
    let address = format!("To accept, sign in within 14 days with this address, {to}:");
    email(
        Kind::Notice,
        to,
        "You are invited to an organization on Assay",
        &[
            Part::Text("Hello,"),
            Part::Text(&invited),
            Part::Text(&address),
            Part::Link("Sign in", &link),
            Part::Text(
                "If you do not know who this is, ignore this mail: nothing happens unless you sign in.",
            ),
        ],
    )
}

enum Part<'a> {
    Text(&'a str),
    Link(&'a str, &'a str),
    Code(&'a str),
}

fn email(kind: Kind, to: &str, subject: &str, parts: &[Part<'_>]) -> Email {
    let (mut text, mut html) = (String::new(), String::new());
    for part in parts {
        // Writing to a text cannot fail.
        let _ = match part {
            Part::Text(words) => write!(text, "{words}\r\n\r\n")
                .and_then(|()| write!(html, "<p>{}</p>", escape(words))),
            Part::Link(label, link) => write!(text, "    {link}\r\n\r\n").and_then(|()| {
                write!(
                    html,
                    "<p><a href=\"{0}\">{1}</a><br><small>{0}</small></p>",
                    escape(link),
                    escape(label)
                )
            }),
            Part::Code(code) => write!(text, "    {code}\r\n\r\n")
                .and_then(|()| write!(html, "<pre>{}</pre>", escape(code))),
        };
    }
    let html = format!(
        "<!doctype html><html lang=\"en\"><body style=\"font-family: sans-serif\">{html}</body></html>"
    );
    Email {
        kind,
        to: to.to_owned(),
        subject: subject.to_owned(),
        text,
        html,
    }
}

/// A text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_and_not_markup() {
        let email = invite(
            "https://assay.example",
            "ada@example.org",
            "<b>A & 'B'</b>",
            "bob@example.org",
            "member",
        );
        assert!(
            email
                .html
                .contains("“&lt;b&gt;A &amp; &#39;B&#39;&lt;/b&gt;”")
                && !email.html.contains("<b>")
        );
        assert!(
            email.text.contains("“<b>A & 'B'</b>”")
                && email.text.contains("https://assay.example/sign-in\r\n")
        );
    }

    #[test]
    fn invite_quotes_the_name_and_shows_the_inviter() {
        let invite = |org| {
            invite(
                "https://assay.example",
                "ada@example.org",
                org,
                "bob@example.org",
                "member",
            )
        };
        let email = invite("SECURITY ALERT”. Call us: \"now");
        assert_eq!(email.subject, "You are invited to an organization on Assay");
        assert!(
            email.text.contains("bob@example.org invites you to the organization “SECURITY ALERT'. Call us: 'now” on Assay, as member.")
        );
        // A name from before links were rejected, or of the operator's choice.
        assert!(!invite("https://evil.example").text.contains("evil"));
    }
}
