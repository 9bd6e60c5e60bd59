//! Looking up what a domain's name server shows.

use std::net::SocketAddr;
use std::time::Duration;

use assay_core::{Error, Result};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};

/// How long one question may take; it is asked twice.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it may take with everything.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);

/// Who is asked.
pub struct Dns {
    resolver: Result<TokioResolver, NetError>,
}

impl Dns {
    /// Asks this server, or the system's. Settings of the system that cannot be read are no reason not to serve: only
    /// domains cannot be verified then.
    pub fn new(server: Option<SocketAddr>) -> Self {
        let resolver = resolver(server);
        if let Err(error) = &resolver {
            tracing::warn!(%error, "no name server is known: domains cannot be verified; ASSAY_DNS_SERVER names one");
        }
        Self { resolver }
    }

    /// The texts at a name; none when there are none.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>> {
        let resolver = self
            .resolver
            .as_ref()
            .map_err(|error| Error::unavailable(error.clone()))?;
        // With the dot at its end no search list is tried.
        let name = Name::from_ascii(format!("{name}.")).map_err(Error::internal)?;
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, resolver.txt_lookup(name))
            .await
            .map_err(Error::unavailable)?;
        match found {
            Ok(found) => Ok(found
                .answers()
                .iter()
                .filter_map(|record| text(&record.data))
                .collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }
}

/// A long text comes in pieces.
fn text(data: &RData) -> Option<String> {
    let RData::TXT(text) = data else { return None };
    String::from_utf8(text.txt_data.concat()).ok()
}

fn resolver(server: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let mut builder = match server {
        None => TokioResolver::builder_tokio()?,
        Some(server) => {
            let connections =
                [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                    connection.port = server.port();
                    connection
                });
            let server = NameServerConfig::new(server.ip(), true, connections.into());
            TokioResolver::builder_with_config(
                ResolverConfig::from_name_servers(vec![server]),
                TokioRuntimeProvider::default(),
            )
        }
    };
    let options = builder.options_mut();
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 1;
    // Whoever has just made the record must not wait for an old answer to be forgotten.
    options.cache_size = 0;
    builder.build()
}
