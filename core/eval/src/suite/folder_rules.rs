//! The rules by which the answers in a folder are scored.

use std::fs;
use std::path::Path;

use super::bad_suite::{BadSuite, first};
use super::groups::GroupField;
use super::lines::FolderGroups;
use super::names::SUITE;
use super::suite_toml::{SkillKey, SliceKeys, SuiteDefinition};
use crate::clusters::Average;
use crate::metric::{Clip, Family, Metric};
use crate::quantile_levels::QuantileLevels;

/// The rules by which the answers in a folder are scored.
pub struct FolderRules {
    /// The metric of the value.
    pub metric: Metric,
    /// The bounds of an item's loss, if the suite has them.
    pub clip: Option<Clip>,
    /// The options of the items, in their order; empty if the suite names none.
    pub labels: Vec<String>,
    /// The levels of predicted quantiles, if the suite has them.
    pub quantiles: Option<QuantileLevels>,
    /// The field that names an item's cluster, if items are not independent.
    pub cluster: Option<GroupField>,
    /// The unit that has equal weights in the value.
    pub average: Average,
    /// The fields with slices.
    pub slices: SliceKeys,
    /// The baseline of the skill, if the suite has one.
    pub skill: Option<SkillKey>,
    /// Set if the folder's retest is scored, if it has one: `metric` is the suite's own.
    pub has_retest: bool,
    /// Set if the ids of the folder's catalog are counted, if it has one: `metric` is one of rankings.
    pub has_catalog: bool,
}

impl FolderRules {
    /// Returns the rules for answers without a suite: losses have no bounds, items are independent, and
    /// there is no retest.
    pub fn for_metric(metric: Metric) -> Self {
        Self {
            metric,
            clip: None,
            labels: Vec::new(),
            quantiles: None,
            cluster: None,
            average: Average::Item,
            slices: SliceKeys::NONE,
            skill: None,
            has_retest: false,
            has_catalog: false,
        }
    }

    /// Returns the rules for the answers in a folder. `named` replaces the suite's metric. The
    /// suite's bounds, average, slices, skill and retest are for its own metric only. Without `suite.toml`, `named`
    /// is required.
    pub fn read(folder: &Path, named: Option<Metric>) -> Result<Self, BadSuite> {
        let path = folder.join(SUITE);
        if let Some(metric) = named
            && !path.exists()
        {
            return Ok(Self::for_metric(metric));
        }
        let own = Self::read_file(&path)?;
        Ok(match named {
            Some(metric) if metric != own.metric => Self {
                metric,
                clip: None,
                labels: if metric.takes_options() {
                    own.labels
                } else {
                    Vec::new()
                },
                average: Average::Item,
                slices: SliceKeys::NONE,
                skill: None,
                has_retest: false,
                has_catalog: metric.family() == Family::Rankings,
                ..own
            },
            _ => own,
        })
    }

    /// Reads the groups of the folder's items.
    ///
    /// # Errors
    /// Returns the first line that has no value of a field, or the field that has no slices.
    pub fn groups(&self, folder: &Path) -> Result<FolderGroups, BadSuite> {
        let groups = FolderGroups::read(
            folder,
            self.cluster.as_ref(),
            &self.slices,
            self.skill.as_ref(),
        )?;
        Ok(FolderGroups {
            average: self.average,
            ..groups
        })
    }

    fn read_file(path: &Path) -> Result<Self, BadSuite> {
        let text =
            fs::read_to_string(path).map_err(|error| BadSuite::unreadable(SUITE, 0, &error))?;
        let suite = SuiteDefinition::parse(&text).map_err(first)?;
        Ok(Self {
            metric: suite.metric,
            clip: suite.protection.clip,
            skill: suite.skill,
            quantiles: suite.quantiles,
            average: suite.average,
            labels: suite.labels,
            cluster: suite.cluster.and_then(|key| key.field().cloned()),
            slices: suite.slices,
            has_retest: true,
            has_catalog: true,
        })
    }
}
