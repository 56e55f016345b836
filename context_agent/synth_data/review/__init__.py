"""Review by people: an HTML page to judge a sample on, and what the judgements decide."""
