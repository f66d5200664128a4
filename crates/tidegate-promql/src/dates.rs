// SPDX-License-Identifier: Apache-2.0

//! The calendar in UTC, and parts of dates: `hour()`, `day_of_week()` and so on.

/// The date function of this name, of a time in seconds; `None`: no function has this name.
pub(super) fn find(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "minute" => |seconds| Date::of(seconds).minute as f64,
        "hour" => |seconds| Date::of(seconds).hour as f64,
        "day_of_week" => |seconds| Date::of(seconds).weekday as f64,
        "day_of_month" => |seconds| Date::of(seconds).day as f64,
        "day_of_year" => |seconds| Date::of(seconds).day_of_year() as f64,
        "days_in_month" => |seconds| {
            let date = Date::of(seconds);
            days_in_month(date.year, date.month) as f64
        },
        "month" => |seconds| Date::of(seconds).month as f64,
        "year" => |seconds| Date::of(seconds).year as f64,
        _ => return None,
    })
}

const DAY: i64 = 86_400;

/// A time in the Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug)]
pub struct Date {
    /// The year. The year before 1 is 0.
    pub year: i64,
    /// From 1 to 12.
    pub month: i64,
    /// From 1 to 31.
    pub day: i64,
    /// The day of the week. 0 is Sunday.
    pub weekday: i64,
    /// From 0 to 23.
    pub hour: i64,
    /// From 0 to 59.
    pub minute: i64,
    /// From 0 to 59.
    pub second: i64,
}

/// Days from 1970-01-01 to a day, in a calendar whose years begin in March: the leap day is their last.
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The days of a month. January is 1.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// NaN is taken for the least number, as Go does.
    fn of(seconds: f64) -> Self {
        Self::of_seconds(if seconds.is_nan() {
            i64::MIN
        } else {
            seconds as i64
        })
    }

    /// The date of a time in seconds since 1970.
    pub fn of_seconds(seconds: i64) -> Self {
        // No calendar covers more; the arithmetic must not overflow.
        let most = i64::MAX / 4;
        let seconds = seconds.clamp(-most, most);
        let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// The day of the year. 1 is the first of January.
    pub fn day_of_year(&self) -> i64 {
        days_since_1970(self.year, self.month, self.day) - days_since_1970(self.year, 1, 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_dates_are_those_of_the_calendar() {
        let parts = |seconds: f64| {
            [
                "year",
                "month",
                "day_of_month",
                "hour",
                "minute",
                "day_of_week",
                "day_of_year",
                "days_in_month",
            ]
            .map(|name| find(name).unwrap()(seconds) as i64)
        };
        assert_eq!(parts(0.0), [1970, 1, 1, 0, 0, 4, 1, 31]);
        assert_eq!(parts(951_782_399.0), [2000, 2, 28, 23, 59, 1, 59, 29]);
        assert_eq!(parts(951_782_400.0), [2000, 2, 29, 0, 0, 2, 60, 29]);
        assert_eq!(parts(1_703_980_800.5), [2023, 12, 31, 0, 0, 0, 365, 31]);
        assert_eq!(parts(-1.0), [1969, 12, 31, 23, 59, 3, 365, 31]);
        assert_eq!(parts(4_107_542_400.0), [2100, 3, 1, 0, 0, 1, 60, 31]);
    }

    proptest! {
        #[test]
        fn a_date_leads_back_to_its_day(days in -1_000_000_i64..1_000_000, within in 0..DAY) {
            let date = Date::of((days * DAY + within) as f64);
            prop_assert_eq!(days_since_1970(date.year, date.month, date.day), days);
            prop_assert!(date.day <= days_in_month(date.year, date.month));
        }
    }

    #[test]
    fn times_without_bounds_are_dates_too() {
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(Date::of(seconds).day > 0);
        }
    }
}
