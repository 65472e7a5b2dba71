package process

func beHostIfAsked() {}

func beLimitedHostIfAsked() {}
