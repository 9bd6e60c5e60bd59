//! Emails: requests queue them, and a delivery task sends them, so that a request's duration
//! does not reveal whether an email was sent.
//!
//! Emails go to the configured mail server by SMTP, otherwise into a folder, one file each. Queued
//! emails are lost if the process is killed; the user then requests another one.
//!
//! Sign-in emails have their own queue, which goes first: other emails, which users can cause
//! in large numbers, must not delay them. An email that waits for its next attempt does not count
//! as a delivery.

mod email;
mod messages;
mod transport;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assay_core::Result;
use assay_core::runtime::prometheus;
use lettre::message::Mailbox;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;

use self::email::{Email, Kind};
pub use self::messages::{account_linked, invite, keys_expiring, news, sign_in, webhook_disabled};
use self::transport::{DeliveryError, Transport};
use crate::settings::MailSettings;

/// The most emails that wait in each queue, and again as many that wait for their next
/// attempt. More mean that the mail server is too slow, or an attack.
const QUEUE_MAX: usize = 1_000;

/// The most concurrent deliveries.
const DELIVERIES_MAX: usize = 8;

/// The most concurrent deliveries for emails other than sign-in emails. The others are
/// reserved for sign-in emails, in case the mail server is slow.
const NOTICE_DELIVERIES_MAX: usize = 4;

/// Delay before each further attempt.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
];

/// The queues for emails from requests.
pub struct Mailer {
    queues: Mutex<Option<Queues>>,
}

struct Queues {
    sign_ins: Sender<Email>,
    notices: Sender<Email>,
}

/// The task that delivers queued emails.
pub struct DeliveryWorker {
    sign_ins: EmailQueue,
    notices: EmailQueue,
}

/// Opens the queues. The returned worker delivers their emails while it runs.
pub fn open(settings: &MailSettings) -> Result<(Mailer, DeliveryWorker)> {
    Ok(open_transport(&Transport::new(settings)?, &settings.from))
}

fn open_transport(transport: &Transport, from: &Mailbox) -> (Mailer, DeliveryWorker) {
    let open_queue = || {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        (
            sender,
            EmailQueue {
                queue,
                retries: JoinSet::new(),
                deliveries: JoinSet::new(),
                transport: transport.clone(),
                from: from.clone(),
            },
        )
    };
    let ((sign_in_sender, sign_ins), (notice_sender, notices)) = (open_queue(), open_queue());
    let queues = Queues {
        sign_ins: sign_in_sender,
        notices: notice_sender,
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

    /// Queues an email without waiting. Drops it if its queue is full or closed.
    pub fn enqueue(&self, email: Email) {
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
            tracing::error!("email dropped, queue full or closed");
        }
    }

    /// Returns `true` if the notice queue is at most half full, so that many at once leave room for
    /// emails from requests.
    pub fn has_room_for_notices(&self) -> bool {
        let queues = self.queues();
        queues
            .as_ref()
            .is_some_and(|queues| queues.notices.capacity() >= QUEUE_MAX / 2)
    }

    /// Closes the queues. The delivery worker ends once it has delivered the queued emails.
    pub fn close(&self) {
        self.queues().take();
    }
}

impl DeliveryWorker {
    /// Delivers emails until the queues are closed and empty.
    pub async fn run(mut self) {
        if let Transport::Folder(folder) = &self.notices.transport {
            tracing::info!(folder = %folder.display(), "no mail server configured, emails are written to a folder");
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

/// A queue, with its emails in delivery.
struct EmailQueue {
    queue: Receiver<Email>,
    /// Emails that wait for their next attempt.
    retries: JoinSet<Attempt>,
    /// Attempts in progress. Each returns its email if that needs another attempt.
    deliveries: JoinSet<Option<Attempt>>,
    transport: Transport,
    from: Mailbox,
}

/// An email, with its failed attempt count.
struct Attempt {
    email: Email,
    failures: usize,
}

impl EmailQueue {
    /// Waits for the next event and handles it: an attempt finishes or, with `has_room`, an attempt
    /// starts. Returns `None` if nothing is left.
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
        self.deliveries.spawn(attempt_delivery(
            self.transport.clone(),
            self.from.clone(),
            attempt,
        ));
    }

    fn retry(&mut self, attempt: Attempt) {
        let delay = RETRY_DELAYS
            .get(attempt.failures - 1)
            .filter(|_| self.retries.len() < QUEUE_MAX);
        let Some(&delay) = delay else {
            tracing::error!("email not sent, no attempt left");
            metrics::counter!(prometheus::MAILS, "outcome" => "failed").increment(1);
            return;
        };
        self.retries.spawn(async move {
            tokio::time::sleep(delay).await;
            attempt
        });
    }
}

/// Makes one attempt to deliver an email. Returns it if a further attempt can succeed.
async fn attempt_delivery(
    transport: Transport,
    from: Mailbox,
    attempt: Attempt,
) -> Option<Attempt> {
    let Attempt { email, failures } = attempt;
    let outcome = match transport.deliver(&from, &email).await {
        Ok(()) => "sent",
        Err(DeliveryError {
            is_permanent: true,
            error,
        }) => {
            tracing::error!(error = error.log_text(), "email not sent, permanent error");
            "failed"
        }
        Err(DeliveryError {
            is_permanent: false,
            error,
        }) => {
            tracing::warn!(
                error = error.log_text(),
                failures,
                "email not sent, attempt failed"
            );
            return Some(Attempt {
                email,
                failures: failures + 1,
            });
        }
    };
    metrics::counter!(prometheus::MAILS, "outcome" => outcome).increment(1);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mailer, delivery) = open_transport(&Transport::Script(script, seen), &from);
        tokio::spawn(delivery.run());
        (mailer, attempts)
    }

    async fn next(attempts: &mut mpsc::UnboundedReceiver<String>) -> String {
        tokio::time::timeout(Duration::from_secs(10), attempts.recv())
            .await
            .unwrap()
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn sign_in_email_does_not_wait_for_invites() {
        // The mail server takes very long for every email that is not to Ada.
        let (mailer, mut attempts) = scripted(|to| {
            (
                Duration::from_secs(if to == "ada@example.org" { 0 } else { 600 }),
                true,
            )
        });
        for n in 0..QUEUE_MAX + 100 {
            mailer.enqueue(email(Kind::Notice, &format!("stranger{n}@example.org")));
        }
        for _ in 0..NOTICE_DELIVERIES_MAX {
            assert!(next(&mut attempts).await.starts_with("stranger"));
        }
        mailer.enqueue(email(Kind::SignIn, "ada@example.org"));
        assert_eq!(next(&mut attempts).await, "ada@example.org");
    }

    #[tokio::test(start_paused = true)]
    async fn retried_email_occupies_no_delivery() {
        let (mailer, mut attempts) = scripted(|to| (Duration::ZERO, to == "ada@example.org"));
        let failing = 3 * DELIVERIES_MAX;
        for n in 0..failing {
            mailer.enqueue(email(Kind::SignIn, &format!("later{n}@example.org")));
        }
        mailer.enqueue(email(Kind::SignIn, "ada@example.org"));
        // All first attempts come before any second one, which is delayed by a second.
        let mut first: Vec<String> = Vec::new();
        for _ in 0..=failing {
            first.push(next(&mut attempts).await);
        }
        first.sort();
        first.dedup();
        assert_eq!(first.len(), failing + 1);
        assert!(first.contains(&String::from("ada@example.org")));
        assert!(
            next(&mut attempts).await.starts_with("later"),
            "the second attempt"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn closed_queue_is_delivered_completely() {
        let (seen, mut attempts) = mpsc::unbounded_channel();
        let from: Mailbox = "Assay <assay@example.org>".parse().unwrap();
        let (mailer, delivery) = open_transport(
            &Transport::Script(|_| (Duration::from_millis(1), true), seen),
            &from,
        );
        for n in 0..20 {
            mailer.enqueue(email(
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
