"""Other people's programs beside ours; workers/ has what the peers' own interpreter runs."""
