"""What was found wrong, how often, and where first."""


class Faults:
    "Faults of many trials."

    def __init__(self):
        self.trials, self.seen = 0, {}

    def add(self, where: str, wrong: list):
        "Note what is wrong with one trial; an empty list notes nothing."
        self.trials += bool(wrong)
        for fault in wrong:
            times, first = self.seen.get(fault, (0, where))
            self.seen[fault] = times + 1, first

    def figures(self) -> dict:
        "The number of trials with faults, and the forty commonest faults."
        common = sorted(self.seen.items(), key=lambda item: -item[1][0])[:40]
        problems = [f"{fault} ({times} times, first in {first})" for fault, (times, first) in common]
        return {"failures": self.trials, "problems": problems}
