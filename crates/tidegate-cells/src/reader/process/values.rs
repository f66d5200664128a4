// SPDX-License-Identifier: Apache-2.0

//! Values of a file: reads them, decodes them and finds those that changed.

use std::io;
use std::os::unix::fs::FileExt;

use super::{ATTEMPTS, Source, SourceSeries, closed};
use crate::layout::SegmentKind;
use crate::record::SeriesRole;
use crate::spec::Kind;
use crate::value::Value;

impl Source {
    /// Bytes of values, up to that of the last series.
    pub(super) fn values_end(&self) -> usize {
        let last = self.series.last_key_value();
        last.map_or(0, |(_, series)| series.end())
    }

    pub(super) fn read_values(&mut self) -> io::Result<()> {
        let end = self.values_end();
        self.values.reserve_exact(end.saturating_sub(self.values.len()));
        self.values.resize(end, 0);
        let file = self.file.as_deref().ok_or_else(closed)?;
        let mut rest = self.values.as_mut_slice();
        let of_values = self
            .changing
            .segments
            .iter()
            .filter(|(kind, ..)| *kind == SegmentKind::Values);
        for (_, offset, len) in of_values {
            let len = usize::try_from(*len).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(len);
            file.read_exact_at(part, *offset)?;
            rest = after;
        }
        self.read_exponentials()
    }

    /// Repeats the read of values whose buffers were switched meanwhile.
    fn read_exponentials(&mut self) -> io::Result<()> {
        let file = self.file.as_deref().ok_or_else(closed)?;
        for (slot, series) in &self.series {
            let spec = self.families.get(series.family as usize);
            if !spec.is_some_and(|spec| matches!(spec.kind, Kind::ExponentialHistogram { .. })) {
                continue;
            }
            for _ in 0..ATTEMPTS {
                let mut control = [0; 8];
                file.read_exact_at(&mut control, slot * 8)?;
                let Some(value) = self.values.get_mut(series.position..series.end()) else {
                    break;
                };
                if value.starts_with(&control) {
                    break;
                }
                file.read_exact_at(value, slot * 8)?;
            }
        }
        Ok(())
    }

    /// A word of a series' value.
    fn word(&self, series: &SourceSeries, word: usize) -> u64 {
        let bytes = self.values.get(series.position + word * 8..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    }

    /// Shows the slots of the series that have another value than at the last call.
    pub(crate) fn changed(&mut self, mut each: impl FnMut(u64)) {
        if self.compared == self.values {
            return;
        }
        for (slot, series) in &self.series {
            let place = series.position..series.end();
            if self.values.get(place.clone()) != self.compared.get(place) {
                each(*slot);
            }
        }
        self.compared.clone_from(&self.values);
    }

    /// The value of a series, and how many look-ups it took if it is the overflow series. `None` of an overflow
    /// series that was never used.
    pub(crate) fn value(&self, series: &SourceSeries, kind: &Kind) -> Option<(Value, u64)> {
        let uses = match series.role {
            SeriesRole::Overflow => self.word(series, series.words - 1),
            _ => 0,
        };
        let unused = series.role == SeriesRole::Overflow && uses == 0;
        (!unused).then(|| (Value::decode(kind, |word| self.word(series, word)), uses))
    }
}
