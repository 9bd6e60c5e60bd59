//! DNS look-ups: the TXT records that verify domains, and webhook receivers' addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use assay_core::{Error, Result};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};

/// One query's longest time. A query is retried once.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// A look-up's longest time with all its queries.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);

/// The DNS resolver.
pub struct Dns {
    /// The resolver, or its configuration's error.
    resolver: Result<TokioResolver, NetError>,
}

impl Dns {
    /// Creates a resolver for this name server, or for the system's. If the system's configuration
    /// cannot be read, the process serves nevertheless.
    pub fn new(server: Option<SocketAddr>) -> Self {
        let resolver = resolver(server);
        if let Err(error) = &resolver {
            tracing::warn!(%error, "no name server configured, domains cannot be verified and webhooks not delivered; set ASSAY_DNS_SERVER");
        }
        Self { resolver }
    }

    /// Returns the values in a name's TXT records, empty if there are none.
    ///
    /// # Errors
    /// `unavailable` if the name server does not respond.
    pub async fn txt_records(&self, name: &str) -> Result<Vec<String>> {
        let lookup = self.resolver()?.txt_lookup(absolute(name)?);
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
            .await
            .map_err(Error::unavailable)?;
        match found {
            Ok(found) => Ok(found
                .answers()
                .iter()
                .filter_map(|record| txt_value(&record.data))
                .collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    /// Returns a host's addresses, empty if it has none.
    ///
    /// # Errors
    /// `unavailable` if the name server does not respond.
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>> {
        let lookup = self.resolver()?.lookup_ip(absolute(name)?);
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
            .await
            .map_err(Error::unavailable)?;
        match found {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    fn resolver(&self) -> Result<&TokioResolver> {
        self.resolver
            .as_ref()
            .map_err(|error| Error::unavailable(error.clone()))
    }
}

/// Returns a name that is not completed with search domains.
fn absolute(name: &str) -> Result<Name> {
    let name = name.strip_suffix('.').unwrap_or(name);
    Name::from_ascii(format!("{name}.")).map_err(Error::internal)
}

/// Returns a TXT record's value, whose 255-byte strings are concatenated.
fn txt_value(data: &RData) -> Option<String> {
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
    // Without a cache, a record that was just created is found at once.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // The local network's names are not the internet's.
    options.use_hosts_file = ResolveHosts::Never;
    builder.build()
}
