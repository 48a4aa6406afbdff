//! Refusals of the queue in terms of the source.

/// Rewords a refusal in terms of the source instead of the API. A list is sent as lines. Each line is an object or
/// empty, because a slow list is filled up with empty lines.
pub(super) fn of_source(mut error: deltaq_client::Error) -> deltaq_client::Error {
    if let deltaq_client::Error::Problem(problem) = &mut error {
        let line = problem.line.unwrap_or_default();
        let number = problem.index.map_or(line, |index| index + 1);
        let places = [format!("line {line}: "), format!("object {}: ", number.saturating_sub(1))];
        let detail = places.iter().find_map(|place| problem.detail.strip_prefix(place.as_str()));
        if let Some(detail) = detail {
            problem.detail = format!("object {number} of the list: {detail}");
        } else if let Some(lines) = problem.detail.strip_prefix("lines ") {
            let same = lines.split_once(" have ").map_or(lines, |(_, same)| same);
            problem.detail = if line == number {
                format!("objects {lines}")
            } else {
                format!("object {number} of the list and one before it have {same}")
            };
        }
        match problem.code.as_str() {
            "mass-delete" => {
                let detail = problem.detail.replace("max_delete_percent", "--max-delete-percent");
                problem.detail = detail.replace("max_deletes", "--max-deletes");
                let hint = "if the list is complete and right, allow it once with --max-delete-percent 100, or with --allow-empty for an empty list";
                problem.hint = Some(hint.to_owned());
            }
            "duplicate-key" => {
                let hint = "let the source name each key once, or keep the last object of each key with --last-duplicate";
                problem.hint = Some(hint.to_owned());
            }
            _ => {}
        }
    }
    error
}
