//! Reads the emails that a stack has written to its folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mail_parser::{Message, MessageParser};

use crate::harness::{World, wait_until};

/// An email as its recipient sees it.
#[derive(Debug, Clone)]
pub struct Mail {
    /// The header `To`.
    pub to: String,
    /// The header `Subject`, decoded.
    pub subject: String,
    /// The plain text part.
    pub text: String,
    /// The HTML part.
    pub html: String,
}

impl Mail {
    /// Parses the email in a file.
    pub fn read(raw: &[u8]) -> Self {
        let mail: Message<'_> = MessageParser::default().parse(raw).unwrap();
        Self {
            to: mail
                .to()
                .unwrap()
                .first()
                .unwrap()
                .address()
                .unwrap()
                .to_owned(),
            subject: mail.subject().unwrap().to_owned(),
            text: mail.body_text(0).unwrap().into_owned(),
            html: mail.body_html(0).unwrap().into_owned(),
        }
    }

    /// Returns the link's token in the text, if there is one.
    pub fn token(&self) -> Option<String> {
        let (_, rest) = self.text.split_once("/sign-in?token=")?;
        Some(
            rest.chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                .collect(),
        )
    }
}

/// Returns all emails to an address, the oldest first.
pub fn mails(world: &World, to: &str) -> Vec<Mail> {
    let Ok(folder) = fs::read_dir(world.stack.mail_folder()) else {
        return Vec::new();
    };
    let mut files: Vec<_> = folder
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "eml"))
        .collect();
    files.sort();
    // Tests poll the folder, in which a shared stack has many tests' emails.
    static READ: Mutex<BTreeMap<PathBuf, Mail>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = Vec::new();
    for path in files {
        let mail = read
            .entry(path)
            .or_insert_with_key(|path| Mail::read(&fs::read(path).unwrap()));
        if mail.to == to {
            found.push(mail.clone());
        }
    }
    found
}

/// Returns the tokens from all links sent to an address.
pub fn links(world: &World, to: &str) -> Vec<String> {
    mails(world, to).iter().filter_map(Mail::token).collect()
}

/// Waits for an email to an address and returns it, if it is the only one.
pub async fn only_mail(world: &World, to: &str) -> Mail {
    wait_until("an email", async || mails(world, to).len() == 1).await;
    mails(world, to).swap_remove(0)
}
