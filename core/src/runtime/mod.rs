//! What the API and the worker run on as processes: settings, logs, Prometheus metrics, trace export, shutdown, the job
//! queue, Redis and the artifact store.

pub mod artifacts;
pub mod background_tasks;
pub mod job_queue;
pub mod process;
pub mod prometheus;
pub mod redis_connection;
pub mod resource_metrics;
pub mod settings;
pub mod suite_folder;
pub mod trace_export;
pub mod upload_reader;
