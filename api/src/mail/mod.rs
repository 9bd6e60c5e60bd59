//! The post: mails are put into a queue by requests and carried off outside of them, so that how long a request takes
//! tells nothing about what was sent.
//!
//! By SMTP where a mail server is configured, otherwise into a folder, a file each. A mail that waits when the process is
//! killed is lost; whoever missed it asks for another one.

mod letters;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assay_core::{CanFail as _, Error, RequestId, Result, Timestamp, telemetry};
use lettre::message::{Mailbox, MultiPart, header};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;

pub use self::letters::{invite, sign_in};
use crate::settings::MailSettings;

/// How many mails may wait. More is a mail server that does not keep up, or an attack.
const WAITING_MAX: usize = 1_000;

/// How many are carried off at once.
const AT_ONCE: usize = 8;

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait before each further try.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// What is written to somebody. No `Debug`: it may hold a secret.
pub struct Letter {
    /// To whom, in the one form of addresses.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// As plain text.
    pub text: String,
    /// The same as HTML.
    pub html: String,
}

/// Where letters are put.
pub struct Post {
    queue: Mutex<Option<Sender<Letter>>>,
}

/// Who carries them off.
pub struct Carrier {
    queue: Receiver<Letter>,
    way: Way,
    from: Mailbox,
}

/// How letters go out.
#[derive(Clone)]
enum Way {
    Smtp(AsyncSmtpTransport<Tokio1Executor>),
    Folder(PathBuf),
}

/// A post office. The carrier has to be run.
pub fn open(settings: &MailSettings) -> Result<(Post, Carrier)> {
    let way = match &settings.smtp_url {
        // The cause is not kept: it could repeat the address, and with it the password.
        Some(url) => Way::Smtp(
            AsyncSmtpTransport::<Tokio1Executor>::from_url(url)
                .map_err(|_| Error::internal("the address of the mail server cannot be used"))?
                .timeout(Some(PATIENCE))
                .build(),
        ),
        None => Way::Folder(PathBuf::from(&settings.folder)),
    };
    let (sender, queue) = mpsc::channel(WAITING_MAX);
    Ok((Post { queue: Mutex::new(Some(sender)) }, Carrier { queue, way, from: settings.from.clone() }))
}

impl Post {
    fn queue(&self) -> std::sync::MutexGuard<'_, Option<Sender<Letter>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a letter, to be carried off soon. Never waits.
    pub fn put(&self, letter: Letter) {
        let taken = self.queue().as_ref().is_some_and(|queue| queue.try_send(letter).is_ok());
        if !taken {
            metrics::counter!(telemetry::MAILS, "outcome" => "dropped").increment(1);
            tracing::error!("a mail was dropped: too many wait for the mail server");
        }
    }

    /// Takes no more. The carrier ends when it has carried off what waits.
    pub fn close(&self) {
        self.queue().take();
    }
}

impl Carrier {
    /// Carries letters off until the post is closed and nothing waits any more.
    pub async fn run(mut self) {
        if let Way::Folder(folder) = &self.way {
            tracing::info!(folder = %folder.display(), "there is no mail server: mails are written to a folder");
        }
        let mut under_way = JoinSet::new();
        while let Some(letter) = self.queue.recv().await {
            if under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            under_way.spawn(carry(self.way.clone(), self.from.clone(), letter));
        }
        under_way.join_all().await;
    }
}

/// Tries a few times.
async fn carry(way: Way, from: Mailbox, letter: Letter) {
    let mut pauses = PAUSES.into_iter();
    let outcome = loop {
        match deliver(&way, &from, &letter).await {
            Ok(()) => break "sent",
            Err(Undelivered { lasting, error }) => match pauses.next().filter(|_| !lasting) {
                Some(pause) => {
                    tracing::warn!(%error, "a mail could not be sent; trying again in {} s", pause.as_secs());
                    tokio::time::sleep(pause).await;
                }
                None => {
                    tracing::error!(%error, "a mail could not be sent");
                    break "failed";
                }
            },
        }
    };
    metrics::counter!(telemetry::MAILS, "outcome" => outcome).increment(1);
}

/// Why a letter did not go out, and whether another try could change that.
struct Undelivered {
    lasting: bool,
    error: Error,
}

async fn deliver(way: &Way, from: &Mailbox, letter: &Letter) -> Result<(), Undelivered> {
    let message = message(from, letter).map_err(|error| Undelivered { lasting: true, error })?;
    match way {
        Way::Smtp(server) => {
            let sent = server.send(message).await;
            sent.map(drop).map_err(|error| Undelivered { lasting: error.is_permanent(), error: Error::internal(error) })
        }
        Way::Folder(folder) => write(folder, &message.formatted()).await.map_err(|error| Undelivered { lasting: false, error }),
    }
}

fn message(from: &Mailbox, letter: &Letter) -> Result<Message> {
    let Letter { to, subject, text, html } = letter;
    let to = Mailbox::new(None, to.parse().map_err(Error::internal)?);
    // Without the machine's name in it, and distinct for each try.
    let id = format!("<{}@{}>", RequestId::random()?, from.email.domain());
    let message = Message::builder().from(from.clone()).to(to).subject(subject).message_id(Some(id));
    let message =
        message.raw_header(header::HeaderValue::new(header::HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into()));
    message.multipart(MultiPart::alternative_plain_html(text.clone(), html.clone())).map_err(Error::internal)
}

/// Writes a mail whole, then gives it its name: who looks into the folder sees no halves.
async fn write(folder: &Path, mail: &[u8]) -> Result<()> {
    let name = format!("{}-{}", Timestamp::now(), RequestId::random()?).replace(':', "-");
    let (part, path) = (folder.join(format!(".{name}.part")), folder.join(format!("{name}.eml")));
    let (folder, mail, target) = (folder.to_path_buf(), mail.to_vec(), path.clone());
    let written = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

        // Mails hold what lets people in: they are nobody else's to read.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        let written = file.write_all(&mail).and_then(|()| std::fs::rename(&part, target));
        if written.is_err() {
            std::fs::remove_file(part).can_fail("removing a part of a mail");
        }
        written
    });
    written.await.map_err(Error::internal)?.map_err(Error::internal)?;
    tracing::info!(path = %path.display(), "a mail was written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_has_both_forms_and_no_header_can_be_smuggled_in() {
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let letter = Letter {
            to: "ada@xn--bcher-kva.example".into(),
            subject: "Ünïcode\r\nBcc: eve@example.org".into(),
            text: "plain".into(),
            html: "<p>rich</p>".into(),
        };
        let mail = String::from_utf8(message(&from, &letter).unwrap().formatted()).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        for header in ["From: ", "To: ada@xn--bcher-kva.example", "Subject: ", "Date: ", "Message-ID: ", "Auto-Submitted: auto-generated"] {
            assert!(head.contains(header), "{header}: {head}");
        }
        assert!(body.contains("text/plain") && body.contains("text/html") && body.contains("plain") && body.contains("<p>rich</p>"));
    }
}
