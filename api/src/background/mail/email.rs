//! An email, and its form as a MIME message.

use assay_core::{Error, RequestId, Result};
use lettre::Message;
use lettre::message::{Mailbox, MultiPart, header};

/// An email. It has no `Debug`, because it may hold a secret.
pub struct Email {
    /// The kind, which chooses the queue.
    pub kind: Kind,
    /// The recipient's address in its normal form.
    pub to: String,
    /// The subject.
    pub subject: String,
    /// The body as plain text.
    pub text: String,
    /// The same body as HTML.
    pub html: String,
}

/// The email kinds. Each has its own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A sign-in link, for which a user waits.
    SignIn,
    /// Any other email.
    Notice,
}

impl Email {
    /// Returns the email as a MIME message with a new `Message-ID`.
    pub(super) fn to_message(&self, from: &Mailbox) -> Result<Message> {
        let Self {
            kind: _,
            to,
            subject,
            text,
            html,
        } = self;
        let to = Mailbox::new(None, to.parse().map_err(Error::internal)?);
        // The id does not contain the machine's name, and differs for each attempt.
        let id = format!("<{}@{}>", RequestId::random()?, from.email.domain());
        let message = Message::builder()
            .from(from.clone())
            .to(to)
            .subject(subject)
            .message_id(Some(id));
        let message = message.raw_header(header::HeaderValue::new(
            header::HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".into(),
        ));
        message
            .multipart(MultiPart::alternative_plain_html(
                text.clone(),
                html.clone(),
            ))
            .map_err(Error::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_has_both_forms_and_no_injected_header() {
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let email = Email {
            kind: Kind::Notice,
            to: "ada@xn--bcher-kva.example".into(),
            subject: "Ünïcode\r\nBcc: eve@example.org".into(),
            text: "plain".into(),
            html: "<p>rich</p>".into(),
        };
        let message = String::from_utf8(email.to_message(&from).unwrap().formatted()).unwrap();
        let (headers, body) = message.split_once("\r\n\r\n").unwrap();
        assert!(
            !headers
                .lines()
                .any(|line| line.to_ascii_lowercase().starts_with("bcc")),
            "{headers}"
        );
        for header in [
            "From: ",
            "To: ada@xn--bcher-kva.example",
            "Subject: ",
            "Date: ",
            "Message-ID: ",
            "Auto-Submitted: auto-generated",
        ] {
            assert!(headers.contains(header), "{header}: {headers}");
        }
        assert!(
            body.contains("text/plain")
                && body.contains("text/html")
                && body.contains("plain")
                && body.contains("<p>rich</p>")
        );
    }
}
