//! Finite CMDP logs from CSV: what is read, and what is refused with which message.

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::io::Write as _;

use coptidice_data::{DataError, Episode, EpisodeEnd, ProblemCode, TabularColumns, TabularLog, read_tabular};

fn read_bytes(bytes: &[u8], columns: &TabularColumns) -> Result<TabularLog, DataError> {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    read_tabular(file.path(), columns)
}

fn read(text: &str) -> Result<TabularLog, DataError> {
    read_bytes(text.as_bytes(), &TabularColumns::default())
}

fn codes(result: Result<TabularLog, DataError>) -> Vec<ProblemCode> {
    match result {
        Err(DataError::Unusable { problems, .. }) => problems.iter().map(|problem| problem.code).collect(),
        other => panic!("expected an unusable log, got {other:?}"),
    }
}

const HEADER: &str = "episode,step,state,action,reward,cost_heat,next_state,terminal\n";

#[test]
fn a_log_comes_back_with_dense_ids_and_labels() {
    let text = format!("{HEADER}a,0,7,10,0.1,1,3,0\na,1,3,2,0.5,0,9,1\nb,0,3,2,-1,0,7,0\nb,1,7,2,2,1,7,0\n");
    let log = read(&text).unwrap();
    assert_eq!(log.state_labels, ["3", "7", "9"]);
    assert_eq!(log.action_labels, ["2", "10"]);
    assert_eq!(log.state, [1, 0, 0, 1]);
    assert_eq!(log.next_state, [0, 2, 1, 1]);
    assert_eq!(log.action, [1, 0, 0, 0]);
    assert_eq!(log.reward, [0.1, 0.5, -1.0, 2.0]);
    assert_eq!((log.cost_names, log.costs), (vec!["heat".to_owned()], vec![vec![1.0, 0.0, 0.0, 1.0]]));
    assert_eq!(log.terminal, [false, true, false, false]);
    let episodes = [
        Episode { start: 0, len: 2, end: EpisodeEnd::Terminal },
        Episode { start: 2, len: 2, end: EpisodeEnd::Cut },
    ];
    assert_eq!(log.episodes, episodes);
    let codes: Vec<ProblemCode> = log.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, [ProblemCode::ActionsRemapped]);
}

#[test]
fn without_a_next_state_the_last_step_of_an_unfinished_episode_is_left_out() {
    let text =
        "episode,state,action,reward,terminal\n1,5,0,1,0\n1,6,1,1,0\n2,6,0,0,0\n2,5,0,0,1\n3,5,0,9,0\n";
    let log = read(text).unwrap();
    assert_eq!(
        log.reward,
        [1.0, 0.0, 0.0],
        "the last step of 1 and the only step of 3 led nobody knows where"
    );
    assert_eq!(log.next_state, [1, 0, 0], "after a terminal the state stands in for the next state");
    assert_eq!(log.episodes.len(), 2);
    assert_eq!(log.logged_steps, [2, 2, 1], "a limit per episode is one on all that was logged");
    assert_eq!(log.problems[0].code, ProblemCode::LastStepDropped);
    assert!(log.problems[0].message.starts_with("2 episodes"), "{}", log.problems[0]);
}

#[test]
fn without_an_episode_column_terminals_separate() {
    let log = read("state,action,reward,next_state,terminal\n0,0,0,1,0\n1,0,1,0,1\n0,1,0,0,1\n").unwrap();
    assert_eq!(log.episodes.iter().map(|episode| episode.len).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn words_name_states_and_actions() {
    let log = read("episode;state;action;reward;next_state\n1;ill;wait;0;well\n1;well;treat;1,5;well\n");
    // A decimal comma is no number: refused with its place, not read as something else.
    let error = log.unwrap_err();
    assert!(matches!(&error, DataError::Cell { row: 1, column, .. } if column == "reward"), "{error}");
    let log =
        read("episode;state;action;reward;next_state\n1;ill;wait;0;well\n1;well;treat;1.5;well\n").unwrap();
    assert_eq!(
        (log.state_labels, log.action_labels),
        (vec!["ill".into(), "well".into()], vec!["treat".into(), "wait".into()])
    );
}

#[test]
fn disorder_is_refused_with_its_place() {
    let log = |rows: &str| read(&format!("{HEADER}{rows}"));
    assert_eq!(codes(log("1,0,0,0,0,0,1,0\n1,0,1,0,0,0,1,0\n")), [ProblemCode::StepsDuplicated]);
    assert!(codes(log("1,1,1,0,0,0,1,1\n1,0,0,0,0,0,1,0\n")).contains(&ProblemCode::StepsUnsorted));
    assert_eq!(codes(log("1,0,0,0,0,0,1,0\n1,1,1,0,0,0,1,0\n1,4,1,0,0,0,1,0\n")), [ProblemCode::StepGap]);
    assert!(
        codes(log("1,0,0,0,0,0,1,0\n2,0,0,0,0,0,1,1\n1,1,1,0,0,0,1,1\n"))
            .contains(&ProblemCode::EpisodesInterleaved)
    );
    assert_eq!(codes(log("1,0,0,0,0,0,1,1\n1,1,1,0,0,0,1,0\n")), [ProblemCode::RowAfterTerminal]);
    assert_eq!(codes(log("1,0,0,0,nan,0,1,1\n")), [ProblemCode::NonFinite]);

    let Err(DataError::Unusable { problems, .. }) = log("1,0,0,0,0,0,1,0\n1,1,2,0,0,0,1,1\n") else {
        panic!("a next state that is not the following state was accepted");
    };
    assert_eq!((problems[0].code, problems[0].row), (ProblemCode::NextStateMismatch, Some(0)));
    assert!(problems[0].message.contains("(1 in the first)") && problems[0].message.contains("row (2)"));
}

#[test]
fn bad_cells_and_headers_are_named() {
    let fraction = read(&format!("{HEADER}1,0,0.5,0,0,0,1,0\n")).unwrap_err();
    assert!(
        matches!(&fraction, DataError::Cell { row: 0, column, value, .. } if column == "state" && value == "0.5")
    );
    let flag = read(&format!("{HEADER}1,0,0,0,0,0,1,2\n")).unwrap_err();
    assert!(matches!(&flag, DataError::Cell { column, .. } if column == "terminal"));
    let uneven = read(&format!("{HEADER}1,0,0\n")).unwrap_err();
    assert!(uneven.to_string().contains("line 2: 3 fields where the header has 8"), "{uneven}");
    assert_eq!(read("").unwrap_err().code(), "empty");
    assert_eq!(read(HEADER).unwrap_err().code(), "empty");
    let latin = read_bytes(b"episode,\xe9tat,action,reward\n", &TabularColumns::default()).unwrap_err();
    assert!(
        matches!(&latin, DataError::ColumnName { column, .. } if column.starts_with("column 1")),
        "{latin}"
    );
    assert_eq!(read("state,state_b,action,reward\n1,1,1,1\n").unwrap_err().code(), "options");
    let marked = "\u{feff}episode,state,action,reward,next_state\n1,0,0,0,0\n";
    assert_eq!(read(marked).unwrap().len(), 1, "a byte-order mark is no part of the first name");
}

#[test]
fn columns_can_be_named() {
    let columns = TabularColumns {
        episode: Some("stay".into()),
        costs: Some(vec!["drug".into(), "alarm".into()]),
        ..TabularColumns::default()
    };
    let text = b"stay,state,action,reward,drug,alarm,next_state,terminal\n4,0,0,0,1,2,0,1\n9,0,0,0,3,4,0,1\n";
    let log = read_bytes(text, &columns).unwrap();
    assert_eq!(log.costs, [vec![1.0, 3.0], vec![2.0, 4.0]]);
    assert_eq!(log.episodes.len(), 2);
}
