//! When an event happened, in nanoseconds since the epoch.

const NS: i128 = 1_000_000_000;

/// The range of a CEL timestamp: the years 1 to 9999.
pub(super) fn in_range(ns: i128) -> Result<i128, &'static str> {
    if (-62_135_596_800 * NS..253_402_300_800 * NS).contains(&ns) { Ok(ns) } else { Err("a timestamp is in the years 1 to 9999") }
}

/// Write a time of the years 1 to 9999 as text in UTC: in milliseconds, or in nanoseconds if it is finer.
pub fn write_rfc3339(text: &mut String, ns: i128) {
    // Arithmetic with 128 bits is slow.
    let seconds = ns.div_euclid(NS) as i64;
    let rest = (ns - i128::from(seconds) * NS) as i64;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since March of year 0, in eras of 400 years, so that the leap day is the last of a year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (rest, digits) = if rest % 1_000_000 == 0 { (rest / 1_000_000, 3) } else { (rest, 9) };
    let parts = [
        (year + era * 400, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (second / 3600, 2, b':'),
        (second / 60 % 60, 2, b':'),
        (second % 60, 2, b'.'),
        (rest, digits, b'Z'),
    ];
    let (mut made, mut at) = (*b"2026-01-31T12:00:00.123456789Z", 0);
    for (mut number, digits, end) in parts {
        for digit in made[at..at + digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        made[at + digits] = end;
        at += digits + 1;
    }
    text.push_str(std::str::from_utf8(&made[..at]).expect("ASCII"));
}

/// Nanoseconds since the epoch; digits beyond nanoseconds are cut off.
pub(super) fn rfc3339(text: &str) -> Result<i128, &'static str> {
    const EXPECTED: &str = "expected RFC 3339, as 2026-01-31T12:00:00.5Z";
    let bytes = text.as_bytes();
    let number = |from: usize, length: usize| -> Result<i64, &'static str> {
        let digits = bytes.get(from..from + length).ok_or(EXPECTED)?;
        digits.iter().try_fold(0, |sum, digit| match digit {
            b'0'..=b'9' => Ok(sum * 10 + i64::from(digit - b'0')),
            _ => Err(EXPECTED),
        })
    };
    let sign = |at: usize, signs: &[u8]| bytes.get(at).filter(|byte| signs.contains(byte)).copied().ok_or(EXPECTED);
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    for (at, signs) in [(4, b"-" as &[u8]), (7, b"-"), (10, b"Tt"), (13, b":"), (16, b":")] {
        sign(at, signs)?;
    }
    let mut at = 19;
    let mut fraction = 0;
    if bytes.get(at) == Some(&b'.') {
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(EXPECTED);
        }
        let precision = digits.min(9);
        fraction = number(at + 1, precision)? * 10_i64.pow(9 - precision as u32);
        at += 1 + digits;
    }
    let mut offset = 0;
    if sign(at, b"Zz").is_ok() {
        at += 1;
    } else {
        let ahead = sign(at, b"+-")? == b'+';
        let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
        sign(at + 3, b":")?;
        if hours > 23 || minutes > 59 {
            return Err("a time offset is at most 23:59");
        }
        offset = (hours * 3600 + minutes * 60) * if ahead { 1 } else { -1 };
        at += 6;
    }
    if at != bytes.len() {
        return Err(EXPECTED);
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err("a month is 01 to 12"),
    };
    if year == 0 || day == 0 || day > days || hour > 23 || minute > 59 || second > 59 {
        return Err("this date or time does not exist");
    }
    // Days since the epoch, counting years from March so that the leap day is the last.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day - 1 - 719_468;
    let seconds = (days * 24 + hour) * 3600 + minute * 60 + second - offset;
    in_range(i128::from(seconds) * NS + i128::from(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let mut ns = -62_135_596_800 * NS;
        while in_range(ns).is_ok() {
            for ns in [ns, ns + 7_000_000, ns + 123_456_789] {
                let mut text = String::new();
                write_rfc3339(&mut text, ns);
                assert_eq!(rfc3339(&text), Ok(ns), "{text}");
                assert_eq!(text.len(), if ns % 1_000_000 == 0 { 24 } else { 30 }, "{text}");
            }
            // Each day of the year comes up, and each hour.
            ns += (86_400 * 97 + 3_607) * NS;
        }
    }

    #[test]
    fn rfc3339_is_read_to_the_nanosecond() {
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(rfc3339("2000-02-29t23:59:59.9999999999z"), Ok(951_868_799_999_999_999));
        assert_eq!(rfc3339("1969-12-31T23:00:00-01:00"), Ok(0));
        assert_eq!(rfc3339("0001-01-01T00:00:00Z"), Ok(-62_135_596_800 * NS));
        assert_eq!(rfc3339("2026-11-21T04:05:06+02:30"), Ok(1_795_224_906 * NS));
        for bad in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+24:00",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "1970-01-01T00:00:00Zé",
            "1970-01-01T00:00:00+0100",
        ] {
            assert!(rfc3339(bad).is_err(), "{bad}");
        }
    }
}
