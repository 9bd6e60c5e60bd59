//! Help, completions, and dashboard pages.

use std::io::{self, IsTerminal as _};

use clap::CommandFactory as _;

use super::context::Context;
use crate::arguments::Arguments;
use crate::failure::{Exit, Failure, Result};
use crate::output::{write_line, write_own_text};

const EXIT_CODES: &str = "\
  0  success
  1  other error
  2  the arguments are not valid
  3  the credential is missing, not valid or not sufficient
  4  not found
  5  conflict, or wrong state
  6  the input is not valid
  7  a limit is reached
  8  the job failed or was cancelled
  9  worse than the baseline (--fail-if-worse)
 75  the service is unavailable: try again later
124  the wait timed out; the job continues
130  interrupted; the job continues";

const ENVIRONMENT: &str = "\
ASSAY_API_KEY    an API key or a session token; precedes the profile
ASSAY_BASE_URL   the address of the installation; --base-url precedes it
ASSAY_PROFILE    the name of the profile; --profile precedes it
ASSAY_CACHE      the folder in which unfinished uploads are remembered
XDG_CONFIG_HOME  the folder of assay/config.toml with the profiles [~/.config]
XDG_CACHE_HOME   the folder of assay, the cache, without ASSAY_CACHE [~/.cache]
NO_COLOR         turns colors off
SSL_CERT_FILE    a file of certificates, instead of those of the system
HTTPS_PROXY      the proxy for requests, http:// or https://; also HTTP_PROXY and ALL_PROXY
NO_PROXY         hosts, domains, addresses and networks (10.0.0.0/8) without a proxy";

/// `assay help`
pub fn help(topic: &[String]) -> Result<()> {
    match topic {
        [topic] if topic == "exit-codes" => return write_line(EXIT_CODES),
        [topic] if topic == "environment" => return write_line(ENVIRONMENT),
        _ => {}
    }
    let mut root = Arguments::command();
    root.build();
    let mut command = &mut root;
    for name in topic {
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            Failure::new(Exit::Usage, format!("there is no command {name:?}"))
                .with_advice("List the commands with: assay help")
        })?;
    }
    let text = command.render_long_help().to_string();
    write_own_text(text.trim_end())
}

/// `assay completions`
pub fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "assay", &mut script);
    write_own_text(String::from_utf8_lossy(&script).trim_end())
}

/// `assay open`
pub fn open(context: &Context, page: Option<&str>) -> Result<()> {
    let base_url = context.base_url(&context.profile()?)?;
    let path = match page {
        None => String::new(),
        Some(id) if id.starts_with("job_") => format!("jobs/{id}"),
        Some(id) if id.starts_with("suite:") => format!("suites/{id}"),
        Some(page) => page.to_owned(),
    };
    let url = format!("{base_url}/{}", path.trim_start_matches('/'));
    write_line(&url)?;
    if io::stdout().is_terminal() {
        open_browser(&url);
    }
    Ok(())
}

/// Opens a page in the browser, if there is one. The address was printed before.
pub fn open_browser(url: &str) {
    if url.starts_with("https://") || url.starts_with("http://") {
        let opened = open::that_detached(url);
        let _ = opened;
    }
}
