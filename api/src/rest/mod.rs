//! The REST adapter. Handlers are generated from the declarations in `proto/assay/v1`; those in `special` are written
//! by hand. Decisions belong to the operations.

mod badges;
pub mod extract;
pub mod input;
mod log_files;
pub mod special;

use axum::Router;
use axum::middleware::from_fn_with_state;

use crate::app::App;
use crate::generated;
use crate::layers;

/// Returns every route. Its layers run only if a route and its method match, so that an unknown
/// path is 404 and a wrong method 405 for every caller.
pub fn routes(app: &App) -> Router<App> {
    generated::rest::routes()
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate),
            from_fn_with_state(app.clone(), layers::rate_limit::limit),
        ))
        .merge(badges::routes(app))
        .merge(log_files::routes(app))
}
