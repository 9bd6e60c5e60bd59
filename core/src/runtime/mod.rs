//! The runtime of the API and worker processes: settings, logs, Prometheus metrics, trace export,
//! shutdown, background tasks, the job queue, Redis, the artifact store and the cryptography of TLS.

pub mod artifacts;
pub mod background_tasks;
pub mod job_queue;
pub mod lines;
pub mod process;
pub mod process_error;
pub mod prometheus;
pub mod redis_connection;
pub mod redis_doctor;
pub mod resource_metrics;
pub mod settings;
pub mod tls;
pub mod trace_export;
pub mod upload_reader;
