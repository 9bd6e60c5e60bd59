//! Mails: requests put them into a queue, and a delivery task sends them, so that how long a request takes says nothing about what was
//! sent.
//!
//! By SMTP where a mail server is configured, otherwise into a folder, a file each. A mail that waits when the process is
//! killed is lost; whoever missed it asks for another one.
//!
//! Sign-in mails have a queue of their own and go first: other mails, which users can cause in numbers, must not delay them. A mail that
//! waits for its next attempt does not count as a delivery.

mod messages;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assay_core::runtime::prometheus;
use assay_core::{BestEffort as _, Error, RequestId, Result, Timestamp};
use lettre::message::{Mailbox, MultiPart, header};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;

pub use self::messages::{invite, sign_in};
use crate::settings::MailSettings;

/// Mails that may wait in each queue, and again as many that wait for their next attempt. More means that the mail server does not keep
/// up, or an attack.
const QUEUE_MAX: usize = 1_000;

/// Concurrent deliveries.
const DELIVERIES_MAX: usize = 8;

/// Concurrent deliveries of mails other than sign-in mails. The rest is free for sign-in mails, also when the mail server is slow.
const NOTICE_DELIVERIES_MAX: usize = 4;

/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

/// How long to wait before each further attempt.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
];

/// A mail. No `Debug`: it may hold a secret.
pub struct Email {
    /// Its queue.
    pub kind: Kind,
    /// To whom, in the one form of addresses.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// As plain text.
    pub text: String,
    /// The same as HTML.
    pub html: String,
}

/// The kinds of mails, which have separate queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A link to sign in with, for which a user waits.
    SignIn,
    /// Anything else.
    Notice,
}

/// The queues that requests put mails into.
pub struct Mailer {
    queues: Mutex<Option<Queues>>,
}

struct Queues {
    sign_ins: Sender<Email>,
    notices: Sender<Email>,
}

/// The delivery of queued mails.
pub struct DeliveryWorker {
    sign_ins: EmailQueue,
    notices: EmailQueue,
}

/// Where mails go.
#[derive(Clone)]
enum Transport {
    Smtp(AsyncSmtpTransport<Tokio1Executor>),
    Folder(PathBuf),
    /// Test double: sees each attempt, and says how long it takes and whether it succeeds.
    #[cfg(test)]
    Script(fn(&str) -> (Duration, bool), mpsc::UnboundedSender<String>),
}

/// Opens the queues. The delivery has to be run.
pub fn open(settings: &MailSettings) -> Result<(Mailer, DeliveryWorker)> {
    let way = match &settings.smtp_url {
        // The cause is not kept: it could repeat the address, and with it the password.
        Some(url) => Transport::Smtp(
            AsyncSmtpTransport::<Tokio1Executor>::from_url(url)
                .map_err(|_| Error::internal("the address of the mail server cannot be used"))?
                .timeout(Some(ATTEMPT_TIMEOUT))
                .build(),
        ),
        None => Transport::Folder(PathBuf::from(&settings.folder)),
    };
    Ok(open_way(&way, &settings.from))
}

fn open_way(way: &Transport, from: &Mailbox) -> (Mailer, DeliveryWorker) {
    let lane = || {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        (
            sender,
            EmailQueue {
                queue,
                retries: JoinSet::new(),
                deliveries: JoinSet::new(),
                way: way.clone(),
                from: from.clone(),
            },
        )
    };
    let ((to_sign_ins, sign_ins), (to_notices, notices)) = (lane(), lane());
    let queues = Queues {
        sign_ins: to_sign_ins,
        notices: to_notices,
    };
    (
        Mailer {
            queues: Mutex::new(Some(queues)),
        },
        DeliveryWorker { sign_ins, notices },
    )
}

impl Mailer {
    fn queues(&self) -> std::sync::MutexGuard<'_, Option<Queues>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a mail. Never waits.
    pub fn put(&self, email: Email) {
        let queued = self
            .queues()
            .as_ref()
            .is_some_and(|Queues { sign_ins, notices }| {
                let queue = if email.kind == Kind::SignIn {
                    sign_ins
                } else {
                    notices
                };
                queue.try_send(email).is_ok()
            });
        if !queued {
            metrics::counter!(prometheus::MAILS, "outcome" => "dropped").increment(1);
            tracing::error!("a mail was dropped: too many wait for the mail server");
        }
    }

    /// Takes no more mails. The delivery ends when it has delivered what waits.
    pub fn close(&self) {
        self.queues().take();
    }
}

impl DeliveryWorker {
    /// Delivers mails until the queues are closed and nothing waits any more.
    pub async fn run(mut self) {
        if let Transport::Folder(folder) = &self.notices.way {
            tracing::info!(folder = %folder.display(), "there is no mail server: mails are written to a folder");
        }
        loop {
            let has_room =
                self.sign_ins.deliveries.len() + self.notices.deliveries.len() < DELIVERIES_MAX;
            let notice_has_room = has_room && self.notices.deliveries.len() < NOTICE_DELIVERIES_MAX;
            tokio::select! {
                biased;
                Some(()) = self.sign_ins.step(has_room) => {}
                Some(()) = self.notices.step(notice_has_room) => {}
                else => break,
            }
        }
    }
}

/// One queue, with its mails under way.
struct EmailQueue {
    queue: Receiver<Email>,
    /// Mails that wait for their next attempt.
    retries: JoinSet<Attempt>,
    /// Each ends with the mail that needs another attempt, if it does.
    deliveries: JoinSet<Option<Attempt>>,
    way: Transport,
    from: Mailbox,
}

/// A mail, with the number of attempts before this one.
struct Attempt {
    email: Email,
    failures: usize,
}

impl EmailQueue {
    /// Waits for the next event and handles it: an attempt has ended or, if there is room, can start. `None` when nothing is left.
    async fn step(&mut self, has_room: bool) -> Option<()> {
        tokio::select! {
            biased;
            Some(done) = self.deliveries.join_next() => {
                if let Ok(Some(attempt)) = done {
                    self.retry(attempt);
                }
            }
            Some(due) = self.retries.join_next(), if has_room => {
                if let Ok(attempt) = due {
                    self.start(attempt);
                }
            }
            Some(email) = self.queue.recv(), if has_room => self.start(Attempt { email, failures: 0 }),
            else => return None,
        }
        Some(())
    }

    fn start(&mut self, attempt: Attempt) {
        self.deliveries
            .spawn(try_once(self.way.clone(), self.from.clone(), attempt));
    }

    fn retry(&mut self, attempt: Attempt) {
        let delay = RETRY_DELAYS
            .get(attempt.failures - 1)
            .filter(|_| self.retries.len() < QUEUE_MAX);
        let Some(&delay) = delay else {
            tracing::error!("a mail could not be sent: no attempt is left");
            metrics::counter!(prometheus::MAILS, "outcome" => "failed").increment(1);
            return;
        };
        self.retries.spawn(async move {
            tokio::time::sleep(delay).await;
            attempt
        });
    }
}

/// Tries to deliver a mail. Returns it if another attempt makes sense.
async fn try_once(way: Transport, from: Mailbox, attempt: Attempt) -> Option<Attempt> {
    let Attempt { email, failures } = attempt;
    let outcome = match deliver(&way, &from, &email).await {
        Ok(()) => "sent",
        Err(Undelivered {
            lasting: true,
            error,
        }) => {
            tracing::error!(%error, "a mail could not be sent");
            "failed"
        }
        Err(Undelivered {
            lasting: false,
            error,
        }) => {
            tracing::warn!(%error, failures, "a mail could not be sent, attempt failed");
            return Some(Attempt {
                email,
                failures: failures + 1,
            });
        }
    };
    metrics::counter!(prometheus::MAILS, "outcome" => outcome).increment(1);
    None
}

/// Why a email did not go out, and whether another try could change that.
struct Undelivered {
    lasting: bool,
    error: Error,
}

async fn deliver(way: &Transport, from: &Mailbox, email: &Email) -> Result<(), Undelivered> {
    let message = message(from, email).map_err(|error| Undelivered {
        lasting: true,
        error,
    })?;
    match way {
        Transport::Smtp(server) => {
            let sent = server.send(message).await;
            sent.map(drop).map_err(|error| Undelivered {
                lasting: error.is_permanent(),
                error: Error::internal(error),
            })
        }
        Transport::Folder(folder) => {
            write(folder, &message.formatted())
                .await
                .map_err(|error| Undelivered {
                    lasting: false,
                    error,
                })
        }
        #[cfg(test)]
        Transport::Script(script, attempts) => {
            let (duration, succeeds) = script(&email.to);
            attempts.send(email.to.clone()).unwrap();
            tokio::time::sleep(duration).await;
            if succeeds {
                Ok(())
            } else {
                Err(Undelivered {
                    lasting: false,
                    error: Error::internal("put off"),
                })
            }
        }
    }
}

fn message(from: &Mailbox, email: &Email) -> Result<Message> {
    let Email {
        kind: _,
        to,
        subject,
        text,
        html,
    } = email;
    let to = Mailbox::new(None, to.parse().map_err(Error::internal)?);
    // Without the machine's name in it, and distinct for each try.
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

/// Writes a mail whole, then gives it its name: who looks into the folder sees no halves.
async fn write(folder: &Path, mail: &[u8]) -> Result<()> {
    let name = format!("{}-{}", Timestamp::now(), RequestId::random()?).replace(':', "-");
    let (part, path) = (
        folder.join(format!(".{name}.part")),
        folder.join(format!("{name}.eml")),
    );
    let (folder, mail, target) = (folder.to_path_buf(), mail.to_vec(), path.clone());
    let written = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

        // Mails hold what lets people in: they are nobody else's to read.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)?;
        let written = file
            .write_all(&mail)
            .and_then(|()| std::fs::rename(&part, target));
        if written.is_err() {
            std::fs::remove_file(part).best_effort("removing a part of a mail");
        }
        written
    });
    written
        .await
        .map_err(Error::internal)?
        .map_err(Error::internal)?;
    tracing::info!(path = %path.display(), "a mail was written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_has_both_forms_and_no_header_can_be_smuggled_in() {
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let email = Email {
            kind: Kind::Notice,
            to: "ada@xn--bcher-kva.example".into(),
            subject: "Ünïcode\r\nBcc: eve@example.org".into(),
            text: "plain".into(),
            html: "<p>rich</p>".into(),
        };
        let mail = String::from_utf8(message(&from, &email).unwrap().formatted()).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(
            !head
                .lines()
                .any(|line| line.to_ascii_lowercase().starts_with("bcc")),
            "{head}"
        );
        for header in [
            "From: ",
            "To: ada@xn--bcher-kva.example",
            "Subject: ",
            "Date: ",
            "Message-ID: ",
            "Auto-Submitted: auto-generated",
        ] {
            assert!(head.contains(header), "{header}: {head}");
        }
        assert!(
            body.contains("text/plain")
                && body.contains("text/html")
                && body.contains("plain")
                && body.contains("<p>rich</p>")
        );
    }

    fn email(kind: Kind, to: &str) -> Email {
        Email {
            kind,
            to: to.into(),
            subject: "s".into(),
            text: "t".into(),
            html: "h".into(),
        }
    }

    fn scripted(script: fn(&str) -> (Duration, bool)) -> (Mailer, mpsc::UnboundedReceiver<String>) {
        let (seen, attempts) = mpsc::unbounded_channel();
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let (mailer, delivery) = open_way(&Transport::Script(script, seen), &from);
        tokio::spawn(delivery.run());
        (mailer, attempts)
    }

    async fn next(attempts: &mut mpsc::UnboundedReceiver<String>) -> String {
        tokio::time::timeout(Duration::from_secs(10), attempts.recv())
            .await
            .unwrap()
            .unwrap()
    }

    #[tokio::test]
    async fn sign_in_mail_does_not_wait_for_invites() {
        // The mail server takes very long for whatever is not to Ada.
        let (mailer, mut attempts) = scripted(|to| {
            (
                Duration::from_secs(if to == "ada@example.org" { 0 } else { 600 }),
                true,
            )
        });
        for n in 0..QUEUE_MAX + 100 {
            mailer.put(email(Kind::Notice, &format!("stranger{n}@example.org")));
        }
        for _ in 0..NOTICE_DELIVERIES_MAX {
            assert!(next(&mut attempts).await.starts_with("stranger"));
        }
        mailer.put(email(Kind::SignIn, "ada@example.org"));
        assert_eq!(next(&mut attempts).await, "ada@example.org");
    }

    #[tokio::test]
    async fn retried_mail_does_not_occupy_a_delivery() {
        let (mailer, mut attempts) = scripted(|to| (Duration::ZERO, to == "ada@example.org"));
        let put_off = 3 * DELIVERIES_MAX;
        for n in 0..put_off {
            mailer.put(email(Kind::SignIn, &format!("later{n}@example.org")));
        }
        mailer.put(email(Kind::SignIn, "ada@example.org"));
        // All first attempts come before any second one, which waits for a second.
        let mut first: Vec<String> = Vec::new();
        for _ in 0..=put_off {
            first.push(next(&mut attempts).await);
        }
        first.sort();
        first.dedup();
        assert_eq!(first.len(), put_off + 1);
        assert!(first.contains(&String::from("ada@example.org")));
        assert!(
            next(&mut attempts).await.starts_with("later"),
            "the second attempt"
        );
    }

    #[tokio::test]
    async fn closed_queue_is_delivered_to_its_end() {
        let (seen, mut attempts) = mpsc::unbounded_channel();
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let (mailer, delivery) = open_way(
            &Transport::Script(|_| (Duration::from_millis(1), true), seen),
            &from,
        );
        for n in 0..20 {
            mailer.put(email(
                if n % 2 == 0 {
                    Kind::SignIn
                } else {
                    Kind::Notice
                },
                "ada@example.org",
            ));
        }
        mailer.close();
        tokio::time::timeout(Duration::from_secs(10), delivery.run())
            .await
            .unwrap();
        let mut delivered = 0;
        while attempts.recv().await.is_some() {
            delivered += 1;
        }
        assert_eq!(delivered, 20);
    }
}
