//! Signing in, and the profiles.

use std::env;
use std::io::{self, IsTerminal as _, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::context::Context;
use super::help::open_browser;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::messages::print;
use crate::operations;
use crate::output::{Format, View, visible, write_line};
use crate::profiles::{Profile, Profiles};

/// The delay before a poll is repeated after a server or network error.
const POLL_AGAIN: Duration = Duration::from_secs(5);

const ORGS: View = View {
    columns: &["id", "name", "plan", "role"],
    id: "id",
};

const PROFILES: View = View {
    columns: &["profile", "base_url", "credential"],
    id: "profile",
};

/// `assay login`
pub fn login(context: &Context, with_key: bool) -> Result<()> {
    let name = context.profile_name();
    let stored = Profiles::load()?.get(name).unwrap_or_default();
    let base_url = context.base_url(&stored)?;
    let key = if with_key {
        read_key(context)?
    } else {
        device_login(context, &base_url)?
    };
    let client = context.client_with(base_url.clone(), Some(key.clone()))?;
    let me = match client.request(&operations::GET_ME).send_json() {
        // A session with several organizations must choose one for this request.
        Err(failure) if failure.code.as_deref() == Some("conflict") => json!({"orgs": []}),
        // A credential that does not work must not replace one that does. A device login's key
        // is new, and nobody could fetch it again.
        Err(failure) if with_key => return Err(failure),
        Err(_) => json!({"orgs": []}),
        Ok(me) => me,
    };
    let profile = Profile {
        base_url: Some(base_url),
        api_key: Some(key),
    };
    // The file can have changed while the user confirmed the code.
    let mut profiles = Profiles::load()?;
    profiles.set(name, &profile)?;
    profiles.save()?;
    let orgs = me["orgs"].as_array().cloned().unwrap_or_default();
    let of = match orgs.as_slice() {
        [org] => format!(" for {}", visible(org["name"].as_str().unwrap_or_default())),
        _ => String::new(),
    };
    let file = profiles.path().display();
    context
        .messages
        .note(&format!("Signed in{of}. Profile {name} in {file}."));
    if env::var_os("ASSAY_API_KEY").is_some_and(|key| !key.is_empty()) {
        context
            .messages
            .warn("ASSAY_API_KEY is set, and precedes the profile.");
    }
    Ok(())
}

/// Reads a credential from standard input.
fn read_key(context: &Context) -> Result<String> {
    if io::stdin().is_terminal() {
        let hint = "Paste the key, then press Enter and Ctrl-D.";
        context.messages.progress(hint);
    }
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::io("standard input", &error))?;
    let key = text.trim();
    if key.starts_with("svc_live_") || key.starts_with("svc_sess_") {
        return Ok(key.to_owned());
    }
    Err(Failure::new(
        Exit::InvalidInput,
        "standard input has no API key (svc_live_…) or session token (svc_sess_…)",
    )
    .with_advice("Write one line: assay login --with-key <key.txt"))
}

/// Signs in by a code that the user confirms in a browser. Returns the API key.
fn device_login(context: &Context, base_url: &str) -> Result<String> {
    let client = context.client_with(base_url.to_owned(), None)?;
    let login = client
        .request(&operations::CREATE_DEVICE_LOGIN)
        .json(&json!({"client_name": client_name()}))
        .send_json()?;
    let text = |field: &str| visible(login[field].as_str().unwrap_or_default());
    let url = text("verification_url_complete");
    // Nobody could sign in without these lines.
    let code = text("user_code");
    let lines = format!("Open {url}\nand confirm the code {code}");
    print(&lines);
    let hint = "Waiting for the confirmation, at most 10 minutes.";
    context.messages.progress(hint);
    if io::stderr().is_terminal() && !context.global.no_input {
        open_browser(&url);
    }
    let interval = Duration::from_secs(login["interval"].as_u64().unwrap_or(5));
    // The server decides when the codes expire; this bound only stops polling a broken server.
    let deadline = Instant::now() + Duration::from_secs(900);
    while Instant::now() < deadline {
        thread::sleep(interval);
        if let Some(key) = poll(&client, &login["device_code"])? {
            return Ok(key);
        }
    }
    Err(Failure::new(Exit::TimedOut, "nobody confirmed the code").with_advice("Try again."))
}

/// Polls once. Returns `None` if the user has not confirmed the code yet.
fn poll(client: &Client, device_code: &Value) -> Result<Option<String>> {
    let response = client
        .request(&operations::POLL_DEVICE_LOGIN)
        .json(&json!({"device_code": device_code}))
        .send_json();
    let login = match response {
        Ok(login) => login,
        Err(failure) if failure.code.as_deref() == Some("invalid_token") => {
            let message = "nobody confirmed the code in time";
            return Err(Failure::new(Exit::Credential, message)
                .with_advice("Sign in again with: assay login"));
        }
        // Polling continues after errors from the server, a proxy or the network.
        Err(failure) if matches!(failure.exit, Exit::Unavailable | Exit::Other | Exit::Limit) => {
            thread::sleep(POLL_AGAIN);
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    match login["status"].as_str() {
        Some("granted") => match login["api_key"]["key"].as_str() {
            Some(key) => Ok(Some(key.to_owned())),
            None => Err(Failure::new(Exit::Other, "the response has no API key")),
        },
        Some("denied") => Err(Failure::new(Exit::Credential, "the sign-in was denied")),
        _ => Ok(None),
    }
}

/// Returns the name that the confirmation page shows.
fn client_name() -> String {
    let host = env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    host.map_or_else(|| "assay".into(), |host| format!("assay on {host}"))
}

/// `assay logout`
pub fn logout(context: &Context) -> Result<()> {
    let mut profiles = Profiles::load()?;
    let name = context.profile_name();
    let Some(profile) = profiles.get(name) else {
        context
            .messages
            .note("There is no profile to sign out from.");
        return Ok(());
    };
    if let (Some(key), Some(base_url)) = (&profile.api_key, &profile.base_url)
        && key.starts_with("svc_sess_")
    {
        let client = context.client_with(base_url.clone(), Some(key.clone()))?;
        match client.request(&operations::END_SESSION).send() {
            // The session has ended already.
            Err(failure) if failure.exit == Exit::Credential => {}
            ended => {
                ended?;
            }
        }
    }
    let is_key = profile
        .api_key
        .as_ref()
        .is_some_and(|key| key.starts_with("svc_live_"));
    profiles.set(
        name,
        &Profile {
            api_key: None,
            ..profile
        },
    )?;
    profiles.save()?;
    context
        .messages
        .note("The credential is removed from the profile.");
    if is_key {
        context
            .messages
            .note("The API key still works. An owner can revoke it in the dashboard.");
    }
    Ok(())
}

/// `assay whoami`
pub fn whoami(context: &Context) -> Result<()> {
    let client = context.client()?;
    let me = client.request(&operations::GET_ME).send_json()?;
    if matches!(context.output.format(), Format::Json | Format::Ndjson) {
        return context.output.object(ORGS, &me);
    }
    if context.output.is_table() {
        let principal = match me["principal"].as_str() {
            Some("api_key") => "an API key",
            _ => "a session",
        };
        let org = visible(me["org_id"].as_str().unwrap_or("no organization"));
        write_line(&format!(
            "{} with {principal}, acting for {org}",
            client.base_url()
        ))?;
    }
    let orgs = me["orgs"].as_array().cloned().unwrap_or_default();
    context.output.list(ORGS, orgs.into_iter().map(Ok))
}

/// `assay profiles`
pub fn profiles(context: &Context) -> Result<()> {
    let profiles = Profiles::load()?;
    let rows = profiles.names().into_iter().filter_map(|name| {
        let profile = profiles.get(&name)?;
        let credential = profile.api_key.map(|key| {
            // Enough to recognize it, as in the key list.
            let start: String = key.chars().take(13).collect();
            format!("{start}…")
        });
        Some(Ok(json!({
            "profile": name,
            "base_url": profile.base_url,
            "credential": credential,
        })))
    });
    context.output.list(PROFILES, rows)
}
