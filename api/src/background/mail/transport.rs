//! Delivering one email: by SMTP, or as a file in a folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_core::{BestEffort as _, Error, RequestId, Result, Timestamp};
use lettre::message::Mailbox;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};

use super::email::Email;
use crate::settings::MailSettings;

/// One SMTP attempt's longest time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

/// All emails' destination.
#[derive(Clone)]
pub(super) enum Transport {
    /// A mail server.
    Smtp(AsyncSmtpTransport<Tokio1Executor>),
    /// A folder, one `.eml` file per email.
    Folder(PathBuf),
    /// A test double. It records each attempt; the function returns its duration and `true` for
    /// success.
    #[cfg(test)]
    Script(
        fn(&str) -> (Duration, bool),
        tokio::sync::mpsc::UnboundedSender<String>,
    ),
}

/// An attempt's failure.
pub(super) struct DeliveryError {
    /// `true` if a further attempt cannot succeed.
    pub(super) is_permanent: bool,
    pub(super) error: Error,
}

impl DeliveryError {
    const fn transient(error: Error) -> Self {
        Self {
            is_permanent: false,
            error,
        }
    }
}

impl Transport {
    /// Returns the transport that the settings choose. Does not connect yet.
    pub(super) fn new(settings: &MailSettings) -> Result<Self> {
        Ok(match &settings.smtp_url {
            // The cause is dropped: it could contain the URL, and with it the password.
            Some(url) => Self::Smtp(
                AsyncSmtpTransport::<Tokio1Executor>::from_url(url)
                    .map_err(|_| Error::internal("the URL of the mail server is not valid"))?
                    .timeout(Some(ATTEMPT_TIMEOUT))
                    .build(),
            ),
            None => Self::Folder(PathBuf::from(&settings.folder)),
        })
    }

    /// Makes one attempt to deliver an email.
    pub(super) async fn deliver(&self, from: &Mailbox, email: &Email) -> Result<(), DeliveryError> {
        let message = email.to_message(from).map_err(|error| DeliveryError {
            is_permanent: true,
            error,
        })?;
        match self {
            Self::Smtp(server) => {
                let sent = server.send(message).await;
                sent.map(drop).map_err(|error| DeliveryError {
                    is_permanent: error.is_permanent(),
                    error: Error::internal(error),
                })
            }
            Self::Folder(folder) => write(folder, &message.formatted())
                .await
                .map_err(DeliveryError::transient),
            #[cfg(test)]
            Self::Script(script, attempts) => {
                let (duration, succeeds) = script(&email.to);
                attempts.send(email.to.clone()).unwrap();
                tokio::time::sleep(duration).await;
                if succeeds {
                    Ok(())
                } else {
                    Err(DeliveryError::transient(Error::internal("try again later")))
                }
            }
        }
    }
}

/// Writes an email to a temporary file and renames it, so that the folder's readers see complete
/// files only.
async fn write(folder: &Path, email: &[u8]) -> Result<()> {
    let name = format!("{}-{}", Timestamp::now(), RequestId::random()?).replace(':', "-");
    let part = folder.join(format!(".{name}.part"));
    let path = folder.join(format!("{name}.eml"));
    let folder = folder.to_path_buf();
    let email = email.to_vec();
    let target = path.clone();
    let written = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

        // Emails contain sign-in links, so the machine's other users must not read them.
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
            .write_all(&email)
            .and_then(|()| std::fs::rename(&part, target));
        if written.is_err() {
            std::fs::remove_file(part).best_effort("removing the temporary file of an email");
        }
        written
    });
    written
        .await
        .map_err(Error::internal)?
        .map_err(Error::internal)?;
    tracing::info!(path = %path.display(), "email written to the folder");
    Ok(())
}
