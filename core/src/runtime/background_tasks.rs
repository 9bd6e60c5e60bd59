//! A process's background tasks, supervised as one set.
//!
//! A process without one of its tasks looks alive but no longer does all its work: jobs are not
//! dispatched, requests are not counted, or a lease is not renewed. Any task's end before shutdown
//! therefore ends the process, and its orchestrator starts another one.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::model::error::{Error, Result};
use crate::runtime::process_error::ProcessError;

/// The tasks that run until shutdown. Dropping the set cancels the running ones.
#[derive(Default)]
pub struct BackgroundTasks {
    running: JoinSet<Result<()>>,
    handles: HashMap<Id, (&'static str, AbortHandle)>,
}

impl BackgroundTasks {
    /// Starts a task. If it ends before shutdown, the error contains its name.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let handle = self.running.spawn(task);
        self.handles.insert(handle.id(), (name, handle));
    }

    /// Starts a task that runs forever or until it sees the shutdown signal.
    pub fn spawn_infallible(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, async {
            task.await;
            Ok(())
        });
    }

    /// Returns the running tasks' names, in alphabetical order.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.handles.values().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names
    }

    /// Waits until a task ends, fails or panics, and returns the error that ends the process.
    ///
    /// Call it only before shutdown: afterwards, tasks end by themselves.
    pub async fn first_failure(&mut self) -> ProcessError {
        match self.running.join_next_with_id().await {
            Some(ended) => self.failure(ended),
            None => Error::internal("no background task runs").into(),
        }
    }

    /// Waits up to `timeout` for the task with this name to end after the shutdown signal.
    ///
    /// # Errors
    /// If the task fails, panics, or still runs after `timeout`. In the last case it keeps running.
    pub async fn join(&mut self, name: &'static str, timeout: Duration) -> Result<()> {
        let joined = tokio::time::timeout(timeout, async {
            while self.handles.values().any(|(running, _)| *running == name) {
                let Some(ended) = self.running.join_next_with_id().await else {
                    break;
                };
                let (id, result) = flatten(ended);
                let ended_name = self.handles.remove(&id).map(|(ended_name, _)| ended_name);
                if ended_name == Some(name) {
                    return result;
                }
            }
            Ok(())
        });
        joined.await.map_err(Error::unavailable)?
    }

    /// Cancels this name's task.
    pub fn abort(&mut self, name: &'static str) {
        for (running, handle) in self.handles.values() {
            if *running == name {
                handle.abort();
            }
        }
    }

    fn failure(&mut self, ended: std::result::Result<(Id, Result<()>), JoinError>) -> ProcessError {
        let (id, result) = flatten(ended);
        let name = self.handles.remove(&id).map_or("unknown", |(name, _)| name);
        match result {
            Ok(()) => ProcessError::TaskEnded { name },
            Err(error) => ProcessError::TaskFailed {
                name,
                cause: error.cause_or_message(),
            },
        }
    }
}

fn flatten(ended: std::result::Result<(Id, Result<()>), JoinError>) -> (Id, Result<()>) {
    match ended {
        Ok(ended) => ended,
        Err(error) => (error.id(), Err(Error::internal(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn two_tasks() -> BackgroundTasks {
        let mut tasks = BackgroundTasks::default();
        tasks.spawn_infallible("endless", pending());
        tasks
    }

    async fn failure(tasks: &mut BackgroundTasks) -> String {
        tasks.first_failure().await.to_string()
    }

    #[tokio::test]
    async fn task_that_ends_is_a_failure() {
        let mut tasks = two_tasks();
        tasks.spawn_infallible("short", async {});
        assert_eq!(failure(&mut tasks).await, "the background task short ended");
        assert_eq!(tasks.names(), ["endless"]);
    }

    #[tokio::test]
    async fn task_that_fails_is_a_failure() {
        let mut tasks = two_tasks();
        tasks.spawn("failing", async { Err(Error::internal("no disk")) });
        assert_eq!(
            failure(&mut tasks).await,
            "the background task failing failed: no disk"
        );
    }

    #[tokio::test]
    async fn task_that_panics_is_a_failure() {
        let mut tasks = two_tasks();
        tasks.spawn_infallible("panicking", async { panic!("out of range") });
        let failure = failure(&mut tasks).await;
        assert!(
            failure.contains("panicking failed") && failure.contains("out of range"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn join_waits_for_the_named_task() {
        let mut tasks = two_tasks();
        tasks.spawn_infallible("other", async {});
        tasks.spawn("last", async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(Error::internal("late"))
        });
        let joined = tasks.join("last", Duration::from_secs(10)).await;
        assert_eq!(joined.unwrap_err().cause_or_message(), "late");
        let late = tasks.join("endless", Duration::from_millis(10)).await;
        assert_eq!(late.unwrap_err().code, crate::Code::Unavailable);
        assert_eq!(tasks.names(), ["endless"]);
    }
}
