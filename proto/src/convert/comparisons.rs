//! Messages of `ComparisonService`.

use assay_core::model::comparison::Comparison;

use crate::v1;

impl From<Comparison> for v1::Comparison {
    fn from(comparison: Comparison) -> Self {
        let Comparison {
            job_a,
            job_b,
            suite_id,
            suite_version,
            metric,
            n,
            value_a,
            value_b,
            difference,
            stderr,
            ci95,
            ci_method,
            p_value,
            p_method,
            n_differ,
            point,
            n_needed,
            lower_is_better,
            better,
            is_significant,
        } = comparison;
        Self {
            job_a: job_a.into(),
            job_b: job_b.into(),
            suite_id: suite_id.into(),
            suite_version,
            metric,
            n,
            value_a,
            value_b,
            difference,
            stderr,
            ci95: ci95.map(Vec::from).unwrap_or_default(),
            ci_method,
            p_value,
            p_method,
            n_differ,
            point,
            n_needed,
            lower_is_better,
            better: better.map(|side| side.as_str().to_owned()),
            is_significant,
        }
    }
}
