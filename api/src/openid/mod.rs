//! Client for OpenID Connect providers: the authorization code flow (OpenID Connect Core 1.0,
//! section 3.1) with PKCE, `state` and `nonce`.

mod flow;
mod settings;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::model::identity::Identity;
use assay_core::model::validation;
use assay_core::runtime::tls::select_cryptography;
use assay_core::{Code, Error, Result, Timestamp};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient,
    CoreClientAuthMethod, CoreGrantType, CoreIdTokenVerifier, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreJwsSigningAlgorithm,
    CoreResponseMode, CoreResponseType, CoreSubjectIdentifierType, CoreTokenResponse,
    CoreUserInfoClaims,
};
use openidconnect::{
    AccessToken, AdditionalProviderMetadata, AsyncHttpClient, AuthType, AuthorizationCode,
    ClaimsVerificationError, ClientId, ClientSecret, CsrfToken, EndpointMaybeSet, EndpointNotSet,
    EndpointSet, HttpRequest, HttpResponse, Nonce, OAuth2TokenResponse as _, ProviderMetadata,
    RedirectUrl, RequestTokenError, Scope, SubjectIdentifier, TokenResponse as _, UserInfoError,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use url::Url;

pub use flow::Flow;
pub use settings::ProviderSettings;

/// Time limit for a request to a provider.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A provider's maximum response size, in bytes.
const RESPONSE_MAX: usize = 1024 * 1024;

/// A logged cause's maximum length, in characters.
const CAUSE_MAX: usize = 500;

/// The time for which a provider's metadata is used.
const METADATA_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The metadata's least age that a token with an unknown key replaces.
const METADATA_REPLACED_AFTER: Duration = Duration::from_secs(30);

/// The time for which a provider that has failed is not asked for its metadata again.
const FAILURE_LIFETIME: Duration = Duration::from_secs(5);

/// The accepted difference between a provider's clock and this process's.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// The algorithms with which a provider may sign: only those whose key the client does not have.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// A provider's metadata, with RFC 9207's field.
type OwnMetadata = ProviderMetadata<
    IssuerMetadata,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// The announcement that callbacks name their provider (RFC 9207, section 3).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct IssuerMetadata {
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for IssuerMetadata {}

/// One provider's client, with the endpoints that its metadata names.
type ProviderClient = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The installation's providers.
pub struct Providers {
    http: LimitedClient,
    public_url: String,
    providers: Vec<Provider>,
}

/// A provider, with its metadata once it was requested.
struct Provider {
    settings: ProviderSettings,
    metadata: Mutex<Option<Metadata>>,
}

/// A provider's metadata with its keys, or its request's failure.
struct Metadata {
    requested_at: Instant,
    found: Result<Arc<OwnMetadata>, String>,
}

/// The parameters with which a provider sends a browser back.
#[derive(Debug, Default)]
pub struct Callback {
    /// The code that is exchanged for tokens. Empty if the provider refused.
    pub code: String,
    /// The sign-in's `state`.
    pub state: String,
    /// The provider that has sent the browser (RFC 9207). Empty if it does not say.
    pub issuer: String,
    /// The reason why the provider refused, such as `access_denied`. Empty if it did not.
    pub error: String,
}

impl Providers {
    /// Creates the client for these providers. `public_url` is the URL to which they send browsers
    /// back.
    ///
    /// # Errors
    /// When TLS cannot be configured.
    pub fn new(settings: Vec<ProviderSettings>, public_url: &str) -> Result<Self> {
        select_cryptography();
        let http = reqwest::Client::builder()
            // A provider's metadata names its endpoints; they must not lead further.
            .redirect(reqwest::redirect::Policy::none())
            // Metadata that names an endpoint without TLS would expose the client's secret.
            .https_only(settings.iter().all(ProviderSettings::has_tls))
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(Error::internal)?;
        let providers = settings.into_iter().map(|settings| Provider {
            settings,
            metadata: Mutex::new(None),
        });
        Ok(Self {
            http: LimitedClient(http),
            public_url: public_url.to_owned(),
            providers: providers.collect(),
        })
    }

    /// Returns all providers' settings, in the sign-in page's order.
    pub fn all(&self) -> impl Iterator<Item = &ProviderSettings> {
        self.providers.iter().map(|provider| &provider.settings)
    }

    /// Returns the URL at a provider on which the user signs in, and what the browser keeps until it
    /// comes back. Returns `None` if there is no provider with this name.
    ///
    /// # Errors
    /// `unavailable` if the provider does not respond.
    pub async fn start(&self, name: &str) -> Result<Option<(Url, Flow)>> {
        let Some(provider) = self.find(name) else {
            return Ok(None);
        };
        let client = self.client(provider, METADATA_LIFETIME).await?;
        let (flow, challenge) = Flow::random(name);
        let (state, nonce) = (
            CsrfToken::new(flow.state.clone()),
            Nonce::new(flow.nonce.clone()),
        );
        let (url, _, _) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                || state,
                || nonce,
            )
            .add_scope(Scope::new(String::from("email")))
            .set_pkce_challenge(challenge)
            .url();
        Ok(Some((url, flow)))
    }

    /// Returns the account that a sign-in's provider has authenticated. `flow` is absent if the
    /// browser has started none.
    ///
    /// # Errors
    /// `invalid_state` if the provider refused, `invalid_token` if the callback does not belong to
    /// the sign-in or was used, `unavailable` if the provider does not respond.
    pub async fn finish(&self, flow: Option<&Flow>, callback: &Callback) -> Result<Identity> {
        let started = flow.and_then(|flow| Some((flow, self.find(&flow.provider)?)));
        let Some((flow, provider)) = started else {
            return Err(not_started());
        };
        let settings = &provider.settings;
        let is_other_issuer =
            !callback.issuer.is_empty() && callback.issuer != settings.issuer.as_str();
        if callback.state != flow.state || is_other_issuer {
            return Err(not_started());
        }
        if callback.code.is_empty() {
            tracing::info!(
                provider = settings.name,
                error = known_error(&callback.error),
                "provider refused a sign-in"
            );
            let message = format!("{} did not confirm who you are.", settings.title);
            return Err(Error::new(Code::InvalidState, message));
        }
        let metadata = self.metadata(provider, METADATA_LIFETIME).await;
        let metadata = metadata.map_err(|failure| unavailable(settings, failure))?;
        let names_issuer = metadata
            .additional_metadata()
            .authorization_response_iss_parameter_supported;
        if names_issuer && callback.issuer.is_empty() {
            return Err(invalid(settings, "the callback does not name its provider"));
        }
        let mut client = self.client(provider, METADATA_LIFETIME).await?;
        let tokens = self.exchange(provider, &client, flow, callback).await?;
        let Some(token) = tokens.id_token() else {
            return Err(invalid(settings, "the provider sent no ID token"));
        };
        let nonce = Nonce::new(flow.nonce.clone());
        let mut claims = token.claims(&verifier(&client), &nonce);
        if let Err(ClaimsVerificationError::SignatureVerification(_)) = claims {
            // The provider may have replaced its keys.
            client = self.client(provider, METADATA_REPLACED_AFTER).await?;
            claims = token.claims(&verifier(&client), &nonce);
        }
        let claims = claims.map_err(|error| invalid(settings, &error.to_string()))?;
        if !has_begun(&token.to_string()) {
            return Err(invalid(settings, "the ID token is not valid yet"));
        }
        let mut email = claims
            .email()
            .map(|email| (email.to_string(), claims.email_verified()));
        if email.is_none() {
            // Many providers name the address only here (section 5.4).
            let claims = self
                .user_info(provider, &client, tokens.access_token(), claims.subject())
                .await?;
            email = claims
                .and_then(|claims| Some((claims.email()?.to_string(), claims.email_verified())));
        }
        let verified = email.filter(|(_, is_verified)| *is_verified == Some(true));
        Ok(Identity {
            issuer: settings.issuer.to_string(),
            subject: claims.subject().to_string(),
            verified_email: verified.and_then(|(email, _)| validation::email("email", &email).ok()),
        })
    }

    fn find(&self, name: &str) -> Option<&Provider> {
        let mut providers = self.providers.iter();
        providers.find(|provider| provider.settings.name == name)
    }

    /// Returns a provider's client, with metadata no older than this.
    async fn client(&self, provider: &Provider, max_age: Duration) -> Result<ProviderClient> {
        let settings = &provider.settings;
        let metadata = self
            .metadata(provider, max_age)
            .await
            .map_err(|failure| unavailable(settings, failure))?;
        let redirect = format!(
            "{}/sign-in/oidc/{}/callback",
            self.public_url, settings.name
        );
        let client = CoreClient::from_provider_metadata(
            OwnMetadata::clone(&metadata),
            ClientId::new(settings.client_id.clone()),
            Some(ClientSecret::new(settings.client_secret.clone())),
        );
        // The default for providers that do not list any is the header `Authorization`.
        let methods = metadata.token_endpoint_auth_methods_supported();
        let accepts_header = methods
            .is_none_or(|methods| methods.contains(&CoreClientAuthMethod::ClientSecretBasic));
        let auth_type = if accepts_header {
            AuthType::BasicAuth
        } else {
            AuthType::RequestBody
        };
        Ok(client
            .set_auth_type(auth_type)
            .set_redirect_uri(RedirectUrl::new(redirect).map_err(Error::internal)?))
    }

    /// Returns a provider's metadata, no older than this. Concurrent callers wait for one
    /// request.
    async fn metadata(
        &self,
        provider: &Provider,
        max_age: Duration,
    ) -> Result<Arc<OwnMetadata>, String> {
        let mut metadata = provider.metadata.lock().await;
        if let Some(metadata) = metadata.as_ref() {
            let lifetime = match metadata.found {
                Ok(_) => max_age,
                Err(_) => FAILURE_LIFETIME,
            };
            if metadata.requested_at.elapsed() < lifetime {
                return metadata.found.clone();
            }
        }
        let issuer = provider.settings.issuer.clone();
        let found = OwnMetadata::discover_async(issuer, &self.http).await;
        let found = found.map(Arc::new).map_err(|error| with_sources(&error));
        let known = metadata.take().and_then(|metadata| metadata.found.ok());
        let found = found.or_else(|failure| known.ok_or(failure));
        *metadata = Some(Metadata {
            requested_at: Instant::now(),
            found: found.clone(),
        });
        found
    }

    async fn exchange(
        &self,
        provider: &Provider,
        client: &ProviderClient,
        flow: &Flow,
        callback: &Callback,
    ) -> Result<CoreTokenResponse> {
        let settings = &provider.settings;
        let exchange = client
            .exchange_code(AuthorizationCode::new(callback.code.clone()))
            .map_err(|error| unavailable(settings, error.to_string()))?
            .set_pkce_verifier(flow.pkce_verifier());
        exchange
            .request_async(&self.http)
            .await
            .map_err(|error| match error {
                RequestTokenError::ServerResponse(refusal) => {
                    invalid(settings, refusal.error().as_ref())
                }
                RequestTokenError::Parse(error, body) if has_id_token(&body) => {
                    invalid(settings, &error.to_string())
                }
                error => unavailable(settings, with_sources(&error)),
            })
    }

    /// Returns the provider's claims about the user, or `None` if it has no such endpoint.
    async fn user_info(
        &self,
        provider: &Provider,
        client: &ProviderClient,
        token: &AccessToken,
        subject: &SubjectIdentifier,
    ) -> Result<Option<CoreUserInfoClaims>> {
        let Ok(request) = client.user_info(token.clone(), Some(subject.clone())) else {
            return Ok(None);
        };
        let claims = request.request_async(&self.http).await;
        claims.map(Some).map_err(|error| match error {
            UserInfoError::Parse(error) => invalid(&provider.settings, &error.to_string()),
            error => unavailable(&provider.settings, with_sources(&error)),
        })
    }
}

/// Returns `true` if a response for tokens has one, however malformed it is.
fn has_id_token(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body)
        .is_ok_and(|response| response["id_token"].is_string())
}

/// Returns the ID token verifier: with the algorithms that are accepted, and the issue time.
fn verifier(client: &ProviderClient) -> CoreIdTokenVerifier<'_> {
    client
        .id_token_verifier()
        .set_allowed_algs(ALGORITHMS)
        .set_issue_time_verifier_fn(|issued_at| {
            if issued_at.timestamp() as f64 <= latest_time() {
                Ok(())
            } else {
                Err("the ID token is issued in the future".into())
            }
        })
}

/// Returns the latest time for a token that is accepted now, in seconds since 1970.
fn latest_time() -> f64 {
    Timestamp::now().unix_micros() as f64 / 1e6 + CLOCK_TOLERANCE.as_secs_f64()
}

/// Returns `true` if `nbf`'s time in a verified token has come, or if it has none (RFC 7519, section
/// 4.1.5). The library does not check it.
fn has_begun(token: &str) -> bool {
    #[derive(Deserialize)]
    struct NotBefore {
        nbf: Option<f64>,
    }
    let payload = token.split('.').nth(1).unwrap_or_default();
    let claims = URL_SAFE_NO_PAD
        .decode(payload)
        .ok()
        .and_then(|json| serde_json::from_slice::<NotBefore>(&json).ok());
    claims.is_some_and(|claims| claims.nbf.is_none_or(|nbf| nbf <= latest_time()))
}

/// An HTTP client that reads responses with a limited size.
struct LimitedClient(reqwest::Client);

impl LimitedClient {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, RequestFailure> {
        let mut received = self.0.execute(request.try_into()?).await?;
        let mut body = Vec::new();
        while let Some(chunk) = received.chunk().await? {
            if body.len() + chunk.len() > RESPONSE_MAX {
                return Err(RequestFailure::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = HttpResponse::new(body);
        *response.status_mut() = received.status();
        *response.headers_mut() = received.headers().clone();
        Ok(response)
    }
}

impl<'client> AsyncHttpClient<'client> for LimitedClient {
    type Error = RequestFailure;
    type Future =
        Pin<Box<dyn Future<Output = Result<HttpResponse, RequestFailure>> + Send + 'client>>;

    fn call(&'client self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

/// Why a request to a provider has no response.
#[derive(Debug, thiserror::Error)]
enum RequestFailure {
    #[error("the response is larger than {RESPONSE_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Http(#[from] reqwest::Error),
}

/// Returns an error code from OAuth 2.0 or OpenID Connect as it is, and `other` for any other text.
fn known_error(error: &str) -> &'static str {
    let known = [
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_request",
        "invalid_scope",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
    ];
    known
        .into_iter()
        .find(|code| *code == error)
        .unwrap_or("other")
}

/// Returns an error's and its causes' messages, shortened.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text.chars().take(CAUSE_MAX).collect()
}

/// Returns the error for a callback without this browser's sign-in.
fn not_started() -> Error {
    let message = "This sign-in was not started in this browser, or it has ended. Start again.";
    Error::new(Code::InvalidToken, message)
}

/// Returns the error for a provider that does not respond as it should.
fn unavailable(settings: &ProviderSettings, cause: String) -> Error {
    let message = format!(
        "{} does not respond. Try again later, or sign in with a link by email.",
        settings.title
    );
    Error::new(Code::Unavailable, message).with_cause(cause)
}

/// Returns the error for a response that does not prove who the user is.
fn invalid(settings: &ProviderSettings, cause: &str) -> Error {
    let message = format!(
        "The confirmation by {} is not valid: it was used, or it is too old. Start again.",
        settings.title
    );
    tracing::warn!(
        provider = settings.name,
        cause,
        "sign-in with a provider failed"
    );
    Error::new(Code::InvalidToken, message)
}
