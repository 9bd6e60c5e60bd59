//! The commands.

mod account;
mod api;
mod compare;
mod context;
mod export;
mod help;
mod jobs;
mod listing;
mod manage;
mod score;
mod submit;
mod suite_definition;
mod suite_folder;
mod suite_import;
mod suite_init;
mod suite_manage;
mod suite_publish;
mod suite_verdict;
mod suites;
mod trace;
mod verify;

use clap::ValueEnum as _;
use context::Context;

use crate::arguments::{Arguments, Command};
use crate::failure::Result;
use crate::messages::Messages;
use crate::output::{Format, Output};

/// Runs a command.
pub fn run(arguments: Arguments) -> Result<()> {
    let Arguments { global, command } = arguments;
    let format = global.format.as_deref();
    // `export` has formats of its own.
    let format = format.and_then(|name| Format::from_str(name, false).ok());
    let context = Context {
        output: Output::new(format, global.color),
        messages: Messages::new(global.quiet, global.verbose),
        global,
    };
    match command {
        Command::Login { with_key } => account::login(&context, with_key),
        Command::Logout => account::logout(&context),
        Command::Whoami => account::whoami(&context),
        Command::Profiles => account::profiles(&context),
        Command::Suites { suite } => suites::suites(&context, suite.as_deref()),
        Command::Items { suite, output } => suites::items(&context, &suite, output.as_deref()),
        Command::Check { suite, file } => suites::check(&context, &suite, &file),
        Command::Submit(submission) => submit::submit(&context, &submission),
        Command::Jobs { filter, watch } => jobs::list(&context, &filter, watch),
        Command::Job { id, wait, slices } => jobs::show(&context, &id, wait.wait, slices),
        Command::Cancel { ids } => jobs::cancel(&context, &ids),
        Command::Wait { ids, timeout } => jobs::wait_for_all(&context, &ids, timeout),
        Command::JobItems { id } => jobs::items(&context, &id),
        Command::Trace { id } => trace::show(&context, &id),
        Command::Board { suite, version } => suites::board(&context, &suite, version),
        Command::Enter {
            id,
            name,
            url,
            marks_final,
        } => jobs::enter(&context, &id, &name, url.as_deref(), marks_final),
        Command::Compare {
            a,
            b,
            baseline,
            fail_if_worse,
        } => compare::compare(&context, &a, b, baseline, fail_if_worse),
        Command::Score {
            answers,
            metric,
            file,
        } => score::score(&context, &answers, metric.as_deref(), &file),
        Command::Suite { action } => suite_manage::run(&context, action),
        Command::Receipt { id, figures } => verify::receipt(&context, &id, figures),
        Command::Export(export) => export::export(&context, &export),
        Command::Verify(evidence) => verify::check(&context, &evidence),
        Command::Usage { days } => manage::usage(&context, days),
        Command::Models { model } => manage::models(&context, model.as_deref()),
        Command::Keys { action } => manage::keys(&context, action),
        Command::Members { action } => manage::members(&context, action),
        Command::Invites { action } => manage::invites(&context, action),
        Command::Domains { action } => manage::domains(&context, action),
        Command::Webhooks { action } => manage::webhooks(&context, action),
        Command::Api(call) => api::send(&context, &call),
        Command::Open { page } => help::open(&context, page.as_deref()),
        Command::Completions { shell } => help::completions(shell),
        Command::Help { topic } => help::help(&topic),
    }
}
