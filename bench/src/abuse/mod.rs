// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask abuse`: peers that lie, against the release binary.
//!
//! Each attack gets a gateway of its own, whose memory limiter allows 256 MiB. Beside it an honest sender pushes a
//! counter, a probe asks for its health, others ask queries, and its memory is looked at. `result` says what must hold
//! of all of them, an attack what must hold besides. A new attack is a row of [`ATTACKS`] and a function.

mod attacks;
mod beside;
mod field;
mod h2;
mod peers;
mod proto;
mod refusals;
mod result;
mod table;
mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::progress::LongTask;
use attacks::{ATTACKS, Attack};
use beside::{Now, beside};
use field::{AttackedGateway, AttackedProgram, LIMIT_MIB, Size};
use result::{AttackResult, AttackTimes, SOFT_MIB, recovery};

/// Before an attack begins, an honest push has been accepted; where a password is checked first, that takes a while.
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// The options of the command.
struct AbuseOptions<'a> {
    size: Size,
    peer: bool,
    publish: bool,
    names: Vec<&'a str>,
}

/// Makes the attacks named, or all, and fails when something did not hold.
pub(crate) fn run(binary: &Path, output: &Path, arguments: &[&str]) -> Result<(), BenchError> {
    let asked = parse(arguments)?;
    // Attackers have more connections than a process usually may have files.
    raise_file_limit();
    let chosen: Vec<_> = ATTACKS.iter().filter(|attack| asked.chooses(attack)).collect();
    if asked.peer {
        return peers::run(binary, output, &chosen, &asked);
    }
    let mut results = Vec::new();
    for (index, attack) in chosen.iter().enumerate() {
        let task = LongTask::new(format!("abuse {}", attack.name)).step(index + 1, chosen.len());
        let _progress = task.begin(String::new);
        results.push(run_attack(
            binary,
            output,
            AttackedProgram::Tidegate,
            attack,
            asked.size,
        ));
    }
    let table = table::table(&results);
    println!("\n{table}");
    let report = format!("{}\n\n{table}", crate::machine::describe()?);
    keep(
        &output.join("report.md"),
        &report,
        asked.publish.then_some("results"),
    )?;
    let failed: Vec<String> = results
        .iter()
        .filter(|result| !result.holds())
        .map(|result| format!("{}\n{}", result.name, result.failures()))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} attacks succeeded: {}",
        failed.len(),
        results.len(),
        failed.concat().trim_end()
    )
    .into())
}

/// Where `--publish` writes.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/abuse.md");

/// Writes results to a file, and to the page where a part of it is named.
fn keep(file: &Path, results: &str, part: Option<&str>) -> Result<(), BenchError> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(file, results)?;
    if let Some(part) = part {
        let page = std::fs::read_to_string(PAGE)?;
        std::fs::write(PAGE, published(&page, part, results)?)?;
    }
    Ok(())
}

/// The page with these results in the place of the last ones of that part.
fn published(page: &str, part: &str, results: &str) -> Result<String, BenchError> {
    let (begin, end) = (
        &*format!("<!-- {part} -->\n"),
        &*format!("<!-- end of {part} -->"),
    );
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has no {begin}"))?;
    Ok(format!("{before}{begin}\n{results}\n{end}{after}"))
}

impl AbuseOptions<'_> {
    /// Those named; without names all.
    fn chooses(&self, attack: &Attack) -> bool {
        self.names.is_empty() || self.names.contains(&attack.name)
    }
}

fn parse<'a>(arguments: &[&'a str]) -> Result<AbuseOptions<'a>, BenchError> {
    let mut asked = AbuseOptions {
        size: Size::Full,
        peer: false,
        publish: false,
        names: Vec::new(),
    };
    for argument in arguments {
        match *argument {
            "--small" => asked.size = Size::Small,
            "--peer" => asked.peer = true,
            "--publish" => asked.publish = true,
            option if option.starts_with("--") => return Err(format!("no option {option}").into()),
            name if ATTACKS.iter().any(|attack| attack.name == name) => asked.names.push(name),
            unknown => {
                let all: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
                return Err(format!("no attack `{unknown}`; there are: {}", all.join(", ")).into());
            }
        }
    }
    Ok(asked)
}

/// Makes an attack and prints its result.
fn run_attack(
    binary: &Path,
    output: &Path,
    role: AttackedProgram,
    attack: &Attack,
    size: Size,
) -> AttackResult {
    let result = match attacked(binary, output, role, attack, size) {
        Ok(result) => result,
        Err(error) => AttackResult::failed(attack.name, &error),
    };
    let of = match role {
        AttackedProgram::Tidegate => "",
        AttackedProgram::Collector => " (Collector)",
    };
    println!("{}{of}: {} ... {}", attack.name, attack.about, result.word());
    print!("{}", result.failures());
    result
}

/// Makes an attack, and judges what came of it; where it fails, what the gateway said is kept.
fn attacked(
    binary: &Path,
    output: &Path,
    role: AttackedProgram,
    attack: &Attack,
    size: Size,
) -> Result<AttackResult, BenchError> {
    let field = AttackedGateway::start(binary, role, &attack.setup, size)?;
    let ((harm, times), seen) = beside(&field, role, attack.setup.honest, |now| {
        let ready = wait(READY, || now.accepts_since(Instant::now() - READY));
        let begun = Instant::now();
        let harm = match ready {
            Some(_) => (attack.run)(&field),
            None => Err("no honest push was accepted before".into()),
        };
        let ended = Instant::now();
        let recovered = wait(2 * recovery(&field), || has_recovered(now, role, ended));
        (
            harm,
            AttackTimes {
                begun,
                ended,
                recovered,
            },
        )
    });
    let result = AttackResult::new(attack, &field, role, harm, &times, &seen);
    if !result.holds() {
        let of = match role {
            AttackedProgram::Tidegate => "",
            AttackedProgram::Collector => "-collector",
        };
        let log = output.join(format!("{}{of}.log", attack.name));
        std::fs::create_dir_all(output)?;
        std::fs::write(log, field.process.printed())?;
    }
    field.process.kill();
    Ok(result)
}

fn has_recovered(now: &Now, role: AttackedProgram, ended: Instant) -> bool {
    let bound = match role {
        AttackedProgram::Tidegate => SOFT_MIB,
        // Its runtime may keep as much as the soft limit.
        AttackedProgram::Collector => LIMIT_MIB,
    };
    now.accepts_since(ended) && now.resident_mib() < bound
}

/// How long something takes to be true, if it does in time.
fn wait(patience: Duration, is_true: impl Fn() -> bool) -> Option<Duration> {
    let asked = Instant::now();
    loop {
        if is_true() {
            return Some(asked.elapsed());
        }
        if asked.elapsed() > patience {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // With fewer, some attacks can't be made, and say so.
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, attack) in ATTACKS.iter().enumerate() {
            assert!(
                ATTACKS[..index].iter().all(|other| other.name != attack.name),
                "{}",
                attack.name
            );
        }
    }

    #[test]
    fn the_page_names_every_attack() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        for Attack { name, about, .. } in ATTACKS {
            assert!(page.contains(&format!("| `{name}` | {about} |\n")), "{name}");
        }
    }

    #[test]
    fn results_take_the_place_of_the_last_ones() {
        let page = "a\n<!-- results -->\nold\n<!-- end of results -->\nb\n";
        let once = published(page, "results", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- results -->\n\nnew\n\n<!-- end of results -->\nb\n");
        assert_eq!(published(&once, "results", "new\n").unwrap(), once);
        assert!(published(page, "others", "b").is_err());
    }

    #[test]
    fn all_attacks_are_made_unless_some_are_named() {
        let chosen = |arguments: &[&str]| {
            let asked = parse(arguments).unwrap();
            ATTACKS.iter().filter(|attack| asked.chooses(attack)).count()
        };
        assert_eq!(chosen(&[]), ATTACKS.len());
        assert_eq!(chosen(&["--small"]), ATTACKS.len());
        assert_eq!(chosen(&["--small", ATTACKS[0].name]), 1);
        assert!(parse(&["--smal"]).is_err() && parse(&["nothing"]).is_err());
    }
}
