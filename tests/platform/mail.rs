//! Reading the mails that a stack has written to its folder.

use std::fs;

use mail_parser::{Message, MessageParser};

use crate::harness::{PATIENCE, World, until};

/// A mail as its reader sees it.
#[derive(Debug, Clone)]
pub struct Mail {
    /// To whom.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// As plain text.
    pub text: String,
    /// As HTML.
    pub html: String,
}

impl Mail {
    /// Reads one.
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

    /// The token of the link in it, if there is one.
    pub fn token(&self) -> Option<String> {
        let (_, rest) = self.text.split_once("/sign-in#token=")?;
        Some(
            rest.chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                .collect(),
        )
    }
}

/// All mails to an address, the oldest first.
pub fn mails(world: &World, to: &str) -> Vec<Mail> {
    let Ok(folder) = fs::read_dir(world.stack.mail_folder()) else {
        return Vec::new();
    };
    let mut files: Vec<_> = folder
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "eml"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| Mail::read(&fs::read(path).unwrap()))
        .filter(|mail| mail.to == to)
        .collect()
}

/// The tokens of all links that came to an address.
pub fn links(world: &World, to: &str) -> Vec<String> {
    mails(world, to).iter().filter_map(Mail::token).collect()
}

/// Waits for the only mail to an address.
pub async fn only_mail(world: &World, to: &str) -> Mail {
    until("a mail", PATIENCE, async || mails(world, to).len() == 1).await;
    mails(world, to).swap_remove(0)
}
