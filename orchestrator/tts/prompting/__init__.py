"""Token ids of chats, of steps and of verifier dialogues."""
